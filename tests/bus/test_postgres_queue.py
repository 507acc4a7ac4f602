"""Several workers on one stream of the Postgres bus: claim, ack, nack, leases; and the settings of the server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from frazil.bus import Message
from frazil.bus.postgres import PostgresBus, PostgresStream
from frazil.bus.postgres_queue import LeaseLost
from frazil.errors import BusGap, Denied, InvalidInput, Misconfigured
from tests.contract.servers import PostgresServer, running_postgres

LONG = 600.0
SHORT = 60.0
"""Both longer than any test takes: time goes by when a test says so."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


async def connect(server: PostgresServer) -> PostgresBus:
    return await PostgresBus.connect(server.url, credentials=server.credentials, max_bytes=64 << 20)


@pytest.fixture
async def bus(server: PostgresServer) -> AsyncIterator[PostgresBus]:
    bus = await connect(server)
    yield bus
    for name in await bus.names():
        await bus.delete(name)
    await bus.close()


@pytest.fixture
async def stream(bus: PostgresBus) -> PostgresStream:
    stream = await bus.create("main.jobs")
    await publish(stream, 6)
    return stream


async def publish(stream: PostgresStream, count: int) -> int:
    return await stream.publish([Message(b"job", {"k": "v"}) for _ in range(count)], message_id=uuid.uuid4().hex)


async def pass_time(server: PostgresServer, seconds: float) -> None:
    """All that the server has noted happened so much earlier."""
    admin = await asyncpg.connect(server.url, user="frazil", password=server.credentials["password"])
    for column in ("claimed set lease_until = lease_until", "published set at = at"):
        await admin.execute(f"update frazil_bus.{column} - make_interval(secs => $1)", seconds)
    await admin.close()


async def test_a_claim_hands_out_each_message_to_one_worker(stream: PostgresStream) -> None:
    one = await stream.claim("loader", 4, LONG)
    two = await stream.claim("loader", 4, LONG)
    three = await stream.claim("loader", 4, LONG)
    assert [delivery.sequence for delivery in one.deliveries] == [1, 2, 3, 4]
    assert [delivery.sequence for delivery in two.deliveries] == [5, 6]
    assert list(three.deliveries) == []
    assert (one.deliveries[0].body, dict(one.deliveries[0].headers)) == (b"job", {"k": "v"})
    assert dict(one.attempts) == {1: 1, 2: 1, 3: 1, 4: 1}
    await publish(stream, 1)
    assert [delivery.sequence for delivery in (await stream.claim("loader", 4, LONG)).deliveries] == [7]


async def test_consumers_do_not_disturb_each_other(stream: PostgresStream) -> None:
    await stream.claim("loader", 6, LONG)
    assert len((await stream.claim("auditor", 6, LONG)).deliveries) == 6


async def test_acked_messages_never_come_back(server: PostgresServer, stream: PostgresStream) -> None:
    claim = await stream.claim("loader", 6, LONG)
    await stream.ack(claim.batch_id, [1, 2, 3])
    await pass_time(server, LONG)
    assert [delivery.sequence for delivery in (await stream.claim("loader", 6, LONG)).deliveries] == [4, 5, 6]


async def test_acking_twice_is_the_same_as_once(server: PostgresServer, stream: PostgresStream) -> None:
    claim = await stream.claim("loader", 2, LONG)
    await stream.ack(claim.batch_id, [1, 2])
    await pass_time(server, LONG)
    await stream.ack(claim.batch_id, [1, 2])
    assert await stream.requeue_expired() == 0


async def test_a_nacked_message_is_claimable_at_once_with_reason_and_attempts(stream: PostgresStream) -> None:
    claim = await stream.claim("loader", 3, LONG)
    await stream.nack(claim.batch_id, [2], "bad row 17")
    again = await stream.claim("loader", 1, LONG)
    assert [delivery.sequence for delivery in again.deliveries] == [2]
    assert (dict(again.attempts), dict(again.reasons)) == ({2: 2}, {2: "bad row 17"})
    with pytest.raises(LeaseLost):
        await stream.ack(claim.batch_id, [2])
    await stream.ack(claim.batch_id, [1, 3])
    await stream.ack(again.batch_id, [2])


async def test_a_late_holder_is_told_that_its_lease_is_lost(server: PostgresServer, stream: PostgresStream) -> None:
    claim = await stream.claim("loader", 2, SHORT)
    await pass_time(server, SHORT)
    for call in (
        stream.ack(claim.batch_id, [1]),
        stream.nack(claim.batch_id, [1], "late"),
        stream.extend_lease(claim.batch_id, LONG),
    ):
        with pytest.raises(LeaseLost) as error:
            await call
        assert (error.value.code, bool(error.value.hint)) == ("lease_lost", True)
    other = await stream.claim("loader", 2, LONG)
    assert [delivery.sequence for delivery in other.deliveries] == [1, 2]
    assert dict(other.reasons) == {1: "lease expired", 2: "lease expired"}
    with pytest.raises(LeaseLost):
        await stream.ack(claim.batch_id, [1])
    await stream.ack(other.batch_id, [1, 2])


async def test_an_ack_is_all_or_nothing(stream: PostgresStream) -> None:
    claim = await stream.claim("loader", 2, LONG)
    with pytest.raises(LeaseLost) as error:
        await stream.ack(claim.batch_id, [1, 2, 5])
    assert error.value.details["sequences"] == [5]
    await stream.nack(claim.batch_id, [1, 2], "not acked by the refused call")


async def test_a_lease_can_be_extended(server: PostgresServer, stream: PostgresStream) -> None:
    claim = await stream.claim("loader", 2, SHORT)
    await stream.extend_lease(claim.batch_id, LONG)
    await pass_time(server, SHORT)
    assert await stream.requeue_expired() == 0
    await stream.ack(claim.batch_id, [1, 2])


async def test_expired_leases_are_requeued_and_counted(server: PostgresServer, stream: PostgresStream) -> None:
    await stream.claim("loader", 2, SHORT)
    kept = await stream.claim("loader", 2, LONG)
    assert await stream.requeue_expired() == 0
    await pass_time(server, SHORT)
    assert await stream.requeue_expired() == 2
    assert await stream.requeue_expired() == 0
    again = await stream.claim("loader", 6, LONG)
    assert [delivery.sequence for delivery in again.deliveries] == [1, 2, 5, 6]
    await stream.ack(kept.batch_id, [3, 4])


async def test_many_workers_share_the_queue_without_overlap(
    server: PostgresServer, bus: PostgresBus, stream: PostgresStream
) -> None:
    """Some fail, some die with their lease; in the end each message was acked exactly once."""
    total = await publish(stream, 294)
    acked: list[int] = []
    workers = [await connect(server) for _ in range(3)]

    async def work(number: int) -> None:
        mine = await workers[number % 3].open("main.jobs")
        turns = 0
        while len(acked) < total:
            claim = await mine.claim("loader", 7, 0.5 if turns % 5 == 4 else LONG)
            sequences = [delivery.sequence for delivery in claim.deliveries]
            turns += 1
            if not sequences:
                await asyncio.sleep(0.05)
            elif turns % 5 == 3:
                await mine.nack(claim.batch_id, sequences, "try again")
            elif turns % 5 != 0:
                await mine.ack(claim.batch_id, sequences)
                acked.extend(sequences)

    await asyncio.wait_for(asyncio.gather(*(work(number) for number in range(6))), 240)
    for worker in workers:
        await worker.close()
    assert sorted(acked) == list(range(1, total + 1))


async def test_a_consumer_that_was_trimmed_away_is_told(stream: PostgresStream) -> None:
    claim = await stream.claim("loader", 2, LONG)
    await stream.trim(5)
    with pytest.raises(BusGap):
        await stream.claim("loader", 2, LONG)
    with pytest.raises(LeaseLost):
        await stream.ack(claim.batch_id, [1])
    assert [delivery.sequence for delivery in (await stream.claim("newcomer", 9, LONG)).deliveries] == [5, 6]


async def test_senseless_claims_are_refused(stream: PostgresStream) -> None:
    for consumer, limit, lease in (("", 1, 1.0), ("a", 0, 1.0), ("a", 1, 0.0)):
        with pytest.raises(InvalidInput):
            await stream.claim(consumer, limit, lease)


async def test_message_ids_are_forgotten_after_the_window(server: PostgresServer, bus: PostgresBus) -> None:
    short = await PostgresBus.connect(
        server.url, credentials=server.credentials, max_bytes=1 << 20, duplicate_window_seconds=SHORT
    )
    stream = await short.create("main.short")
    assert await stream.publish([Message(b"a")], message_id="one") == 1
    assert await stream.publish([Message(b"a")], message_id="one") == 1
    await pass_time(server, SHORT)
    assert await stream.publish([Message(b"a")], message_id="one") == 2
    await short.close()


async def test_the_tables_are_made_once_by_many_at_a_time(server: PostgresServer, bus: PostgresBus) -> None:
    admin = await asyncpg.connect(server.url, user="frazil", password=server.credentials["password"])
    await admin.execute("drop schema frazil_bus cascade")
    buses = await asyncio.gather(*(connect(server) for _ in range(6)))
    await buses[0].create("main.first")
    assert await buses[5].names() == ["main.first"]
    for other in buses:
        await other.close()
    await admin.close()


async def test_the_settings_of_the_server_are_checked(bus: PostgresBus) -> None:
    facts = await bus.check()
    assert (facts["sync"], facts["fsync"], facts["full_page_writes"]) == ("on", "on", "on")


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_whose_commits_are_not_durable_is_refused(setting: str) -> None:
    with running_postgres(options={setting: "off"}) as lazy:
        bus = await connect(lazy)
        with pytest.raises(Misconfigured) as error:
            await bus.check()
        await bus.close()
    assert setting in error.value.message


async def test_commits_are_synchronous_even_where_the_server_is_lazy_by_default() -> None:
    with running_postgres(options={"synchronous_commit": "off"}) as lazy:
        bus = await connect(lazy)
        assert (await bus.check())["sync"] == "on"
        await bus.close()


async def test_unlogged_tables_are_refused(server: PostgresServer, bus: PostgresBus) -> None:
    admin = await asyncpg.connect(server.url, user="frazil", password=server.credentials["password"])
    await admin.execute("alter table frazil_bus.published set unlogged")
    with pytest.raises(Misconfigured):
        await bus.check()
    await admin.execute("alter table frazil_bus.published set logged")
    await admin.close()
    await bus.check()


async def test_a_wrong_password_is_denied_and_not_repeated(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Denied) as error:
        await PostgresBus.connect(server.url, credentials={"user": "frazil", "password": "hunter2"}, max_bytes=1)
    assert "hunter2" not in f"{error.value.message} {error.value.hint}"
    monkeypatch.setenv("PGPASSWORD", server.credentials["password"])
    bus = await PostgresBus.connect(server.url, credentials={"user": "frazil"}, max_bytes=1)
    await bus.close()
