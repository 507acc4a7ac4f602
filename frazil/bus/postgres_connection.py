"""Postgres connections of the bus: a pool for work, a listener for new heads, translated errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from frazil.bus.stream_rules import unknown
from frazil.errors import Denied, FrazilError, Unavailable

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]

_log = logging.getLogger(__name__)

CHANNEL = "frazil_bus"
_CONNECT_SECONDS = 5.0
_ACQUIRE_SECONDS = 5.0
_COMMAND_SECONDS = 10.0
_REDIAL_SECONDS = (0.05, 1.0)


class PostgresConnections:
    """A pool, and a listener that reconnects for ever and calls `on_reconnect` each time."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], arguments: Mapping[str, Any]) -> None:
        self._pool = pool
        self._arguments = arguments
        self._listening: asyncio.Task[None] | None = None
        self.on_head: Callable[[str, int], None] = lambda identity, head: None
        self.on_reconnect: Callable[[], None] = lambda: None

    @classmethod
    async def connect(cls, url: str, credentials: Mapping[str, str]) -> PostgresConnections:
        """`credentials` may have `user` and `password`; the environment (PGPASSWORD and so on) is the second place."""
        arguments: dict[str, Any] = {
            "dsn": url,
            "timeout": _CONNECT_SECONDS,
            "server_settings": {"synchronous_commit": "on", "application_name": "frazil"},
            **{key: credentials[key] for key in ("user", "password") if credentials.get(key)},
        }
        async with translated("a connection"):
            pool = await asyncpg.create_pool(min_size=1, max_size=8, command_timeout=_COMMAND_SECONDS, **arguments)
        return cls(pool, arguments)

    @asynccontextmanager
    async def work(self, doing: str) -> AsyncIterator[Connection]:
        """A connection; errors of the database are translated."""
        async with translated(doing), self._pool.acquire(timeout=_ACQUIRE_SECONDS) as connection:
            yield connection

    def listen(self) -> None:
        """Start listening, once."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait((self._listening,))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _listen(self) -> None:
        pause, longest = _REDIAL_SECONDS
        while True:
            try:
                async with translated("a listener"):
                    connection = await asyncpg.connect(**self._arguments)
                    try:
                        gone = asyncio.Event()
                        connection.add_termination_listener(lambda _, gone=gone: gone.set())
                        await connection.add_listener(CHANNEL, self._on_notify)
                        self.on_reconnect()
                        pause = _REDIAL_SECONDS[0]
                        await gone.wait()
                    finally:
                        connection.terminate()
            except FrazilError as error:
                _log.debug("bus listener failed: %s", error)
            except Exception:  # nobody would notice its end: heads would be found by polling only
                _log.exception("bus listener failed")
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)

    def _on_notify(self, connection: object, pid: int, channel: str, payload: object) -> None:
        identity, _, head = str(payload).partition(" ")
        self.on_head(identity, int(head))


@asynccontextmanager
async def translated(doing: str) -> AsyncIterator[None]:
    """Turn the errors of the database into ours. None of them repeats the address or the password."""
    try:
        yield
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        raise Denied(
            "Postgres refused the credentials of the bus", hint="set PGPASSWORD, or the user and password of the bus"
        ) from error
    except asyncpg.DiskFullError as error:
        raise Unavailable(
            "the disk of the Postgres bus is full",
            code="bus_full",
            hint="free some space on the database server",
            retry_after_seconds=5.0,
        ) from error
    except asyncpg.PostgresError as error:
        raise unknown(doing, f"{type(error).__name__}: {error}") from error
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        # The driver raises InternalClientError for a connection that broke in the middle of a command.
        raise unknown(doing, type(error).__name__) from error
