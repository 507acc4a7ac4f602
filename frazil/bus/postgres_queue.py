"""Several workers share one stream of the Postgres bus: claim, ack, nack, leases.

A claim hands out messages for a time. Who holds the lease may ack or nack; once it has run out the messages are
claimable again, and the late holder is told so. A message is handed out at least once, so that what workers do must
bear repetition; the commit of events to tables never relies on any of this.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.bus import Delivery
from frazil.bus.postgres_connection import PostgresConnections
from frazil.bus.stream_rules import gap
from frazil.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from frazil.bus.postgres_connection import Connection


@dataclass(frozen=True)
class Claim:
    """Messages held under one lease, with how often each was handed out and why it came back the last time."""

    batch_id: str
    deliveries: Sequence[Delivery]
    attempts: Mapping[int, int]
    reasons: Mapping[int, str]


class LeaseLost(Conflict):
    """The lease ran out, or was never held: another worker may have the messages."""

    code = "lease_lost"


class Queue:
    """The claims on one stream."""

    def __init__(self, link: PostgresConnections, name: str, identity: str) -> None:
        self._link = link
        self._name = name
        self._identity = identity

    async def claim(self, consumer: str, limit: int, lease_seconds: float) -> Claim:
        """Up to `limit` messages that no other worker of this consumer holds: returned ones first, then new ones."""
        if not consumer or limit < 1 or lease_seconds <= 0:
            raise InvalidInput(
                "a claim needs a consumer, a limit and a lease", hint="pass a name and numbers above zero"
            )
        batch_id = uuid.uuid4().hex
        async with self._link.work("a claim") as connection, connection.transaction():
            await self._enter(connection, consumer)
            taken = await connection.fetch(
                """
                update frazil_bus.claimed c
                set batch_id = $3, attempts = attempts + 1,
                    reason = case when c.batch_id is null then c.reason else 'lease expired' end,
                    lease_until = clock_timestamp() + make_interval(secs => $4)
                from (
                    select sequence from frazil_bus.claimed
                    where identity = $1 and consumer = $2 and not acked
                      and (batch_id is null or lease_until < clock_timestamp())
                    order by sequence limit $5 for update skip locked
                ) free
                where c.identity = $1 and c.consumer = $2 and c.sequence = free.sequence
                returning c.sequence
                """,
                self._identity,
                consumer,
                batch_id,
                lease_seconds,
                limit,
            )
            if len(taken) < limit:
                await self._take_new(connection, consumer, batch_id, limit - len(taken), lease_seconds)
            return await self._held(connection, batch_id)

    async def ack(self, batch_id: str, sequences: Iterable[int]) -> None:
        """These are done. All or none; twice is the same as once; raises `LeaseLost`."""
        await self._settle(
            batch_id,
            sequences,
            """
            update frazil_bus.claimed set acked = true
            where identity = $1 and batch_id = $2 and sequence = any($3)
              and (acked or lease_until >= clock_timestamp())
            returning sequence
            """,
        )

    async def nack(self, batch_id: str, sequences: Iterable[int], reason: str) -> None:
        """These failed: they are claimable again at once, with the reason kept. All or none; raises `LeaseLost`."""
        await self._settle(
            batch_id,
            sequences,
            """
            update frazil_bus.claimed set batch_id = null, lease_until = null, reason = $4
            where identity = $1 and batch_id = $2 and sequence = any($3)
              and not acked and lease_until >= clock_timestamp()
            returning sequence
            """,
            reason,
        )

    async def extend_lease(self, batch_id: str, lease_seconds: float) -> None:
        """Hold what is not settled yet for so long from now; raises `LeaseLost` when any of it has run out."""
        async with self._link.work("a lease extension") as connection, connection.transaction():
            rows = await connection.fetch(
                """
                select lease_until >= clock_timestamp() as held from frazil_bus.claimed
                where identity = $1 and batch_id = $2 and not acked for update
                """,
                self._identity,
                batch_id,
            )
            if not rows or not all(row["held"] for row in rows):
                raise _lost(batch_id)
            await connection.execute(
                """
                update frazil_bus.claimed set lease_until = clock_timestamp() + make_interval(secs => $3)
                where identity = $1 and batch_id = $2 and not acked
                """,
                self._identity,
                batch_id,
                lease_seconds,
            )

    async def requeue_expired(self) -> int:
        """Make claimable again what was held too long, and say how many messages that were."""
        async with self._link.work("a requeue") as connection:
            rows = await connection.fetch(
                """
                update frazil_bus.claimed c set batch_id = null, lease_until = null, reason = 'lease expired'
                from (
                    select consumer, sequence from frazil_bus.claimed
                    where identity = $1 and not acked and lease_until < clock_timestamp()
                    for update skip locked
                ) late
                where c.identity = $1 and c.consumer = late.consumer and c.sequence = late.sequence
                returning c.sequence
                """,
                self._identity,
            )
            return len(rows)

    async def _enter(self, connection: Connection, consumer: str) -> None:
        """A consumer begins at what is available when it first comes."""
        await connection.execute(
            """
            insert into frazil_bus.consumer (identity, consumer, next)
            select identity, $2, first from frazil_bus.stream where identity = $1
            on conflict do nothing
            """,
            self._identity,
            consumer,
        )

    async def _take_new(
        self, connection: Connection, consumer: str, batch_id: str, limit: int, lease_seconds: float
    ) -> None:
        start = await connection.fetchrow(
            """
            select c.next, s.first from frazil_bus.consumer c join frazil_bus.stream s using (identity)
            where c.identity = $1 and c.consumer = $2 for update of c
            """,
            self._identity,
            consumer,
        )
        if start is None:
            return
        if start["next"] < start["first"]:
            raise gap(self._name, int(start["next"]), int(start["first"]))
        await connection.execute(
            """
            with new as (
                insert into frazil_bus.claimed (identity, consumer, sequence, batch_id, lease_until)
                select identity, $2, sequence, $3, clock_timestamp() + make_interval(secs => $4)
                from frazil_bus.message where identity = $1 and sequence >= $6 order by sequence limit $5
                returning sequence
            )
            update frazil_bus.consumer set next = greatest(next, (select max(sequence) + 1 from new))
            where identity = $1 and consumer = $2
            """,
            self._identity,
            consumer,
            batch_id,
            lease_seconds,
            limit,
            start["next"],
        )

    async def _held(self, connection: Connection, batch_id: str) -> Claim:
        rows = await connection.fetch(
            """
            select sequence, headers, body, attempts, reason
            from frazil_bus.claimed join frazil_bus.message using (identity, sequence)
            where identity = $1 and batch_id = $2 order by sequence
            """,
            self._identity,
            batch_id,
        )
        return Claim(
            batch_id,
            [Delivery(row["sequence"], row["body"], json.loads(row["headers"])) for row in rows],
            {row["sequence"]: row["attempts"] for row in rows},
            {row["sequence"]: row["reason"] for row in rows if row["reason"]},
        )

    async def _settle(self, batch_id: str, sequences: Iterable[int], statement: str, *more: str) -> None:
        wanted = sorted(set(sequences))
        async with self._link.work("the end of a claim") as connection, connection.transaction():
            rows = await connection.fetch(statement, self._identity, batch_id, wanted, *more)
            if missing := sorted(set(wanted) - {row["sequence"] for row in rows}):
                raise _lost(batch_id, missing)


def _lost(batch_id: str, missing: Sequence[int] = ()) -> LeaseLost:
    which = f" on {', '.join(map(str, missing[:10]))}" if missing else ""
    return LeaseLost(
        f"the claim {batch_id} holds no lease{which} any more",
        hint="claim again; take shorter batches, ask for a longer lease or extend it in time",
        details={"batch_id": batch_id, "sequences": list(missing)},
    )
