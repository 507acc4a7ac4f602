"""Postgres bus: streams as tables, for those who run a database and no broker.

A publish locks the row of its stream and takes the next numbers under that lock: sequences are contiguous and in the
order of commits, which those of a database sequence are not. A publish is one transaction, all or nothing, also at a
power cut.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

import asyncpg

from frazil.bus import Delivery, HeadMoved, Message, StreamMissing
from frazil.bus.head_watch import HeadWatch
from frazil.bus.postgres_connection import CHANNEL, PostgresConnections
from frazil.bus.stream_rules import (
    DUPLICATE_WINDOW_SECONDS,
    check_name,
    check_publish,
    full,
    gap,
    lost_end,
    replaced,
    unknown,
)
from frazil.errors import Conflict, FrazilError, Misconfigured

if TYPE_CHECKING:
    from frazil.bus.postgres_connection import Connection

_log = logging.getLogger(__name__)

_SCHEMA_LOCK = 0x66727A6C
LOOK_AGAIN_SECONDS = 1.0
_TURN_SECONDS = 20.0


class PostgresBus:
    """`EventBus` on Postgres."""

    def __init__(self, connections: PostgresConnections, max_bytes: int, duplicate_window_seconds: float) -> None:
        self.connections = connections
        self.max_bytes = max_bytes
        self.duplicate_window_seconds = duplicate_window_seconds
        self._streams: dict[str, PostgresStream] = {}
        connections.on_head = self._on_head
        connections.on_reconnect = self._on_reconnect

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        credentials: Mapping[str, str],
        max_bytes: int,
        duplicate_window_seconds: float = DUPLICATE_WINDOW_SECONDS,
    ) -> PostgresBus:
        """Connect to `postgresql://host/database` and make the tables where they are missing."""
        connections = await PostgresConnections.connect(url, credentials)
        try:
            async with connections.work("the creation of the tables") as connection, connection.transaction():
                # Two at a time would collide even with `if not exists`.
                await connection.execute("select pg_advisory_xact_lock($1)", _SCHEMA_LOCK)
                await connection.execute(files("frazil.bus").joinpath("postgres.sql").read_text())
        except BaseException:
            await connections.close()
            raise
        return cls(connections, max_bytes, duplicate_window_seconds)

    async def create(self, name: str, *, first_sequence: int = 1) -> PostgresStream:
        check_name(name)
        identity = uuid.uuid4().hex
        async with self.connections.work("the creation of a stream") as connection:
            try:
                await connection.execute(
                    "insert into frazil_bus.stream (name, identity, first, head) values ($1, $2, $3, $4)",
                    name,
                    identity,
                    first_sequence,
                    first_sequence - 1,
                )
            except asyncpg.UniqueViolationError as error:
                raise Conflict(
                    f"the bus has a stream for {name} already", hint="open it, or delete it first if it may be lost"
                ) from error
        return self._handle(name, identity)

    async def open(self, name: str) -> PostgresStream:
        check_name(name)
        async with self.connections.work("a look for a stream") as connection:
            return self._handle(name, await _identity(connection, name))

    async def delete(self, name: str) -> None:
        check_name(name)
        async with self.connections.work("the deletion of a stream") as connection:
            await connection.execute("delete from frazil_bus.stream where name = $1", name)

    async def names(self) -> list[str]:
        async with self.connections.work("a look for streams") as connection:
            rows = await connection.fetch("select name from frazil_bus.stream order by name")
            return [str(row["name"]) for row in rows]

    async def check(self) -> dict[str, str]:
        async with self.connections.work("a look at the settings") as connection:
            settings = {
                row["name"]: row["setting"]
                for row in await connection.fetch(
                    "select name, setting from pg_settings where name = any($1)",
                    ["fsync", "synchronous_commit", "full_page_writes", "server_version"],
                )
            }
            unlogged = await connection.fetchval(
                "select count(*) from pg_class where relnamespace = 'frazil_bus'::regnamespace"
                " and relkind = 'r' and relpersistence <> 'p'"
            )
        wrong = [name for name in ("fsync", "full_page_writes") if settings[name] != "on"]
        if settings["synchronous_commit"] not in ("on", "remote_apply"):
            wrong.append("synchronous_commit")
        if wrong:
            raise Misconfigured(
                f"Postgres acknowledges events before they are safe: {', '.join(wrong)} must be on",
                hint="set it in postgresql.conf and reload the server",
            )
        if unlogged:
            raise Misconfigured(
                "tables of the bus are unlogged: a crash would empty them",
                hint="alter table … set logged for each table of the schema frazil_bus",
            )
        return {
            "server": f"postgres {settings.pop('server_version')}",
            "sync": settings["synchronous_commit"],
            "fsync": settings["fsync"],
            "full_page_writes": settings["full_page_writes"],
        }

    async def close(self) -> None:
        await self.connections.close()

    def _handle(self, name: str, identity: str) -> PostgresStream:
        """One handle per stream, so that an announcement reaches all waiters."""
        known = self._streams.get(name)
        if known is None or known.identity != identity:
            known = self._streams[name] = PostgresStream(self, name, identity)
        return known

    def _on_head(self, identity: str, head: int) -> None:
        for stream in self._streams.values():
            if stream.identity == identity:
                stream.head_watch.announce(head)

    def _on_reconnect(self) -> None:
        for stream in self._streams.values():
            stream.head_watch.interrupted()


class PostgresStream:
    """`Stream` on Postgres."""

    def __init__(self, bus: PostgresBus, name: str, identity: str) -> None:
        self._bus = bus
        self._name = name
        self._identity = identity
        self._publishing = asyncio.Lock()
        # A publisher may die before it announces the head: look again now and then.
        self.head_watch = HeadWatch(LOOK_AGAIN_SECONDS)

    @property
    def name(self) -> str:
        return self._name

    @property
    def identity(self) -> str:
        return self._identity

    async def publish(self, messages: Sequence[Message], *, message_id: str, expected_last: int | None = None) -> int:
        check_publish(messages, message_id)
        async with self._turn(), self._bus.connections.work("a publish") as connection:
            async with connection.transaction():
                last = await self._append(connection, messages, message_id, expected_last)
            # After the commit: a NOTIFY inside the transaction would make the commits of all streams queue up.
            try:
                await connection.execute("select pg_notify($1, $2)", CHANNEL, f"{self._identity} {last}")
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
                _log.warning("announcement of message %s of %s failed: %s", last, self._name, error)
        return last

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Publishers of one stream would queue up at its row anyway: here they do without a connection each."""
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._publishing.acquire()
        except TimeoutError as error:
            raise unknown("a publish", f"others were first for {_TURN_SECONDS:g} s, nothing was sent") from error
        try:
            yield
        finally:
            self._publishing.release()

    async def _append(
        self, connection: Connection, messages: Sequence[Message], message_id: str, expected_last: int | None
    ) -> int:
        row = await connection.fetchrow(
            "select head, bytes from frazil_bus.stream where identity = $1 for update", self._identity
        )
        if row is None:
            raise await self._gone(connection)
        head, used = int(row["head"]), int(row["bytes"])
        window = self._bus.duplicate_window_seconds
        await connection.execute(
            "delete from frazil_bus.published"
            " where identity = $1 and at < clock_timestamp() - make_interval(secs => $2)",
            self._identity,
            window,
        )
        first_answer = await connection.fetchval(
            "select last from frazil_bus.published where identity = $1 and message_id = $2", self._identity, message_id
        )
        if first_answer is not None:
            return int(first_answer)
        if expected_last is not None and expected_last != head:
            raise HeadMoved(
                f"the stream of {self._name} is at {head}, not at {expected_last}",
                hint="look at the head and publish again",
            )
        size = sum(len(message.body) for message in messages)
        if used + size > self._bus.max_bytes:
            raise full(self._name, f"{used} of {self._bus.max_bytes} bytes are used")
        last = head + len(messages)
        await connection.executemany(
            "insert into frazil_bus.message (identity, sequence, headers, body) values ($1, $2, $3, $4)",
            [
                (self._identity, sequence, json.dumps(dict(message.headers)), bytes(message.body))
                for sequence, message in enumerate(messages, head + 1)
            ],
        )
        await connection.execute(
            "insert into frazil_bus.published (identity, message_id, last) values ($1, $2, $3)",
            self._identity,
            message_id,
            last,
        )
        await connection.execute(
            "update frazil_bus.stream set head = $2, bytes = bytes + $3 where identity = $1",
            self._identity,
            last,
            size,
        )
        return last

    async def read(self, first: int, *, max_messages: int = 256, max_bytes: int = 16 << 20) -> list[Delivery]:
        async with self._bus.connections.work("a read") as connection:
            # One statement, hence one view of the stream: a trim in between cannot look like a hole.
            rows = await connection.fetch(
                """
                select s.first, s.head, m.sequence, m.headers, m.body
                from frazil_bus.stream s left join lateral (
                    select sequence, headers, body,
                           sum(octet_length(body)) over (order by sequence) - octet_length(body) as before
                    from (
                        select sequence, headers, body from frazil_bus.message
                        where identity = s.identity and sequence >= $2 order by sequence limit $3
                    ) candidates
                ) m on m.before < $4
                where s.identity = $1 order by m.sequence
                """,
                self._identity,
                first,
                max(max_messages, 1),
                max(max_bytes, 1),
            )
            if not rows:
                raise await self._gone(connection)
        available, head = int(rows[0]["first"]), int(rows[0]["head"])
        if first > head + 1:
            raise lost_end(self._name, first, head)
        if first < available:
            raise gap(self._name, first, available)
        found = [
            Delivery(row["sequence"], row["body"], json.loads(row["headers"]))
            for row in rows
            if row["sequence"] is not None
        ]
        for index, delivery in enumerate(found):
            if delivery.sequence != first + index:
                raise gap(self._name, first + index, delivery.sequence)
        if not found and first <= head:
            raise gap(self._name, first, head + 1)
        return found

    async def head(self) -> int:
        return (await self._ends())[1]

    async def first(self) -> int:
        return (await self._ends())[0]

    async def wait(self, above: int, *, timeout_seconds: float) -> int:
        self._bus.connections.listen()
        return await self.head_watch.wait(above, timeout_seconds, self.head)

    async def trim(self, below: int) -> None:
        async with self._bus.connections.work("a trim") as connection, connection.transaction():
            row = await connection.fetchrow(
                "select first, head from frazil_bus.stream where identity = $1 for update", self._identity
            )
            if row is None:
                raise await self._gone(connection)
            below = min(below, int(row["head"]) + 1)
            if below <= int(row["first"]):
                return
            freed = await connection.fetchval(
                """
                with gone as (
                    delete from frazil_bus.message where identity = $1 and sequence < $2
                    returning octet_length(body) as size
                )
                select coalesce(sum(size), 0)::bigint from gone
                """,
                self._identity,
                below,
            )
            await connection.execute(
                "update frazil_bus.stream set first = $2, bytes = bytes - $3 where identity = $1",
                self._identity,
                below,
                freed,
            )

    async def _ends(self) -> tuple[int, int]:
        async with self._bus.connections.work("a look at the stream") as connection:
            row = await connection.fetchrow(
                "select first, head from frazil_bus.stream where identity = $1", self._identity
            )
            if row is None:
                raise await self._gone(connection)
            return int(row["first"]), int(row["head"])

    async def _gone(self, connection: Connection) -> FrazilError:
        return replaced(self._name, self._identity, await _identity(connection, self._name))


async def _identity(connection: Connection, name: str) -> str:
    found = await connection.fetchval("select identity from frazil_bus.stream where name = $1", name)
    if found is None:
        raise StreamMissing(
            f"the bus has no stream for {name}",
            hint=f"check that this is the right bus; `frazil repair bus {name}` makes a new stream",
        )
    return str(found)
