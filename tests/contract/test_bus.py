"""The contract of the bus, one suite for all of them, on real servers."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from frazil.bus import (
    Delivery,
    EventBus,
    HeadMoved,
    Message,
    Stream,
    StreamMissing,
    nats,
    open_bus,
    postgres,
    postgres_connection,
)
from frazil.bus.memory import MemoryBus
from frazil.errors import BusGap, BusReplaced, Conflict, InvalidInput, TooLarge, Unavailable
from tests.contract.servers import Server, running_nats, running_postgres

MEGABYTE = 1 << 20
PATIENCE_SECONDS = 120.0
"""A bound against hanging on a busy machine, not a measurement."""


@dataclass
class Rig:
    """A bus of one kind: how to connect to it again, and the server behind it if there is one."""

    kind: str
    server: Server | None
    buses: list[EventBus] = field(default_factory=list)
    memory: MemoryBus | None = None

    async def connect(self, max_bytes: int = 256 * MEGABYTE) -> EventBus:
        if self.server is None:
            if self.memory is None or self.memory.max_bytes != max_bytes:
                self.memory = MemoryBus(max_bytes=max_bytes)
            return self.memory
        bus = await open_bus(self.server.url, credentials=self.server.credentials, max_bytes=max_bytes)
        self.buses.append(bus)
        return bus

    async def close(self) -> None:
        if self.server is None:
            return
        sweeper = await self.connect()
        for name in await sweeper.names():
            await sweeper.delete(name)
        for bus in self.buses:
            await bus.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], Server | None]]:
    """Starts each server when the first test asks for it."""
    started: dict[str, Server] = {}
    contexts = []

    def get(kind: str) -> Server | None:
        if kind == "memory":
            return None
        if kind not in started:
            context = running_nats() if kind == "nats" else running_postgres()
            contexts.append(context)
            started[kind] = context.__enter__()
        return started[kind]

    yield get
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture(params=["memory", "nats", "postgres"])
async def rig(request: pytest.FixtureRequest, servers: Callable[[str], Server | None]) -> AsyncIterator[Rig]:
    rig = Rig(request.param, servers(request.param))
    yield rig
    if rig.server is not None and not rig.server.running:
        # A test that failed while the server was down shall not take the others with it.
        rig.server.kill()
        rig.server.start()
    await rig.close()


@pytest.fixture
async def bus(rig: Rig) -> EventBus:
    return await rig.connect()


@pytest.fixture
async def stream(bus: EventBus) -> Stream:
    return await bus.create("main.orders")


def text(*bodies: str) -> list[Message]:
    return [Message(body.encode()) for body in bodies]


def fresh() -> str:
    return uuid.uuid4().hex


async def publish(stream: Stream, *bodies: str, expected_last: int | None = None) -> int:
    return await stream.publish(text(*bodies), message_id=fresh(), expected_last=expected_last)


async def read_all(stream: Stream, first: int) -> list[Delivery]:
    found: list[Delivery] = []
    while batch := await stream.read(first + len(found)):
        found += batch
    return found


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.body.decode() for delivery in deliveries]


# --- order and reading ------------------------------------------------------------------------------------------------


async def test_messages_come_back_in_order_with_their_headers(stream: Stream) -> None:
    assert await stream.publish([Message(b"a", {"frazil-part": "1/1", "Kind": "x y"})], message_id=fresh()) == 1
    assert await publish(stream, "b", "c") == 3
    assert await publish(stream, "d") == 4
    found = await stream.read(1)
    assert [(delivery.sequence, delivery.body) for delivery in found] == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]
    assert [dict(delivery.headers) for delivery in found] == [{"frazil-part": "1/1", "Kind": "x y"}, {}, {}, {}]


async def test_reading_changes_nothing(rig: Rig, stream: Stream) -> None:
    await publish(stream, "a", "b", "c")
    once = await stream.read(2)
    assert bodies(once) == ["b", "c"]
    assert await stream.read(2) == once
    other = await (await rig.connect()).open("main.orders")
    assert await other.read(2) == once


async def test_a_read_is_bounded_and_gives_at_least_one(stream: Stream) -> None:
    await publish(stream, *("x" * 1000 for _ in range(20)))
    assert [delivery.sequence for delivery in await stream.read(3, max_messages=4)] == [3, 4, 5, 6]
    assert 1 <= len(await stream.read(1, max_bytes=3000)) <= 4
    assert len(await stream.read(1, max_bytes=1)) == 1
    assert len(await stream.read(20, max_messages=1)) == 1


async def test_a_read_at_the_end_is_empty_and_does_not_wait(stream: Stream) -> None:
    assert await stream.read(1) == []
    await publish(stream, "a")
    assert await stream.read(2) == []


async def test_hundreds_of_small_messages(stream: Stream) -> None:
    async def one(number: int) -> int:
        return await publish(stream, str(number))

    answers = await asyncio.gather(*(one(number) for number in range(400)))
    assert sorted(answers) == list(range(1, 401))
    found = await read_all(stream, 1)
    assert [delivery.sequence for delivery in found] == list(range(1, 401))
    assert {answer: str(number) for number, answer in enumerate(answers)} == {
        delivery.sequence: delivery.body.decode() for delivery in found
    }


async def test_a_message_of_almost_8_megabytes(stream: Stream) -> None:
    body = random.randbytes(7_900_000)
    await stream.publish([Message(body), Message(b"small")], message_id=fresh())
    await stream.publish([Message(body)], message_id=fresh())
    found = await read_all(stream, 1)
    assert [delivery.body for delivery in found] == [body, b"small", body]


async def test_an_empty_body_and_binary_bodies(stream: Stream) -> None:
    tricky = [b"", b"\r\n", bytes(range(256)), b"+OK\r\nMSG a 1 1\r\n"]
    await stream.publish([Message(body, {"k": "v"}) for body in tricky], message_id=fresh())
    assert [delivery.body for delivery in await stream.read(1)] == tricky
    await stream.publish([Message(b"", {"Status": "204"})], message_id=fresh())
    assert [dict(delivery.headers) for delivery in await stream.read(5)] == [{"Status": "204"}]


# --- what happens twice -----------------------------------------------------------------------------------------------


async def test_the_same_message_id_changes_nothing(stream: Stream) -> None:
    first = await stream.publish(text("a"), message_id="one")
    assert await stream.publish(text("a"), message_id="one") == first
    several = await stream.publish(text("b", "c", "d"), message_id="two")
    await publish(stream, "e")
    assert await stream.publish(text("b", "c", "d"), message_id="two") == several
    assert await stream.publish(text("a"), message_id="one") == first
    assert bodies(await stream.read(1)) == ["a", "b", "c", "d", "e"]


async def test_a_repeated_message_id_wins_over_a_head_that_moved(stream: Stream) -> None:
    """A publisher whose reply was lost repeats its call unchanged, and the head it named is long past."""
    single = await stream.publish(text("a"), message_id="one", expected_last=0)
    several = await stream.publish(text("b", "c"), message_id="two", expected_last=1)
    assert await stream.publish(text("a"), message_id="one", expected_last=0) == single
    assert await stream.publish(text("b", "c"), message_id="two", expected_last=1) == several
    assert await stream.head() == 3


async def test_the_same_message_id_from_many_at_once_is_written_once(rig: Rig, stream: Stream) -> None:
    handles = [stream, await (await rig.connect()).open("main.orders")]
    answers = await asyncio.gather(
        *(handles[turn % 2].publish(text("a", "b"), message_id="same") for turn in range(12))
    )
    assert answers == [2] * 12
    assert await stream.head() == 2


# --- the expected head ------------------------------------------------------------------------------------------------


async def test_a_publisher_with_a_wrong_idea_of_the_head_is_refused(stream: Stream) -> None:
    await publish(stream, "a", expected_last=0)
    for wrong in (0, 2, 7):
        with pytest.raises(HeadMoved) as refused:
            await publish(stream, "x", expected_last=wrong)
        assert refused.value.hint
        with pytest.raises(HeadMoved):
            await publish(stream, "x", "y", expected_last=wrong)
    assert await publish(stream, "b", "c", expected_last=1) == 3
    assert bodies(await stream.read(1)) == ["a", "b", "c"]


async def test_exactly_one_of_many_racing_publishers_wins_each_round(rig: Rig, stream: Stream) -> None:
    handles = [stream] + [await (await rig.connect()).open("main.orders") for _ in range(3)]
    for round_number in range(15):
        head = await stream.head()
        count = 1 + round_number % 3
        outcomes = await asyncio.gather(
            *(
                handle.publish(
                    text(*(f"{round_number}.{turn}" for _ in range(count))), message_id=fresh(), expected_last=head
                )
                for turn, handle in enumerate(handles * 3)
            ),
            return_exceptions=True,
        )
        winners = [turn for turn, outcome in enumerate(outcomes) if outcome == head + count]
        assert len(winners) == 1
        assert sum(isinstance(outcome, HeadMoved) for outcome in outcomes) == len(outcomes) - 1
        assert set(bodies(await stream.read(head + 1))) == {f"{round_number}.{winners[0]}"}


# --- head, first, trim ------------------------------------------------------------------------------------------------


async def test_an_empty_stream(stream: Stream) -> None:
    assert (await stream.first(), await stream.head()) == (1, 0)
    await stream.trim(1)
    await stream.trim(100)
    assert (await stream.first(), await stream.head()) == (1, 0)
    assert await publish(stream, "a") == 1


async def test_a_stream_that_begins_above_one(bus: EventBus) -> None:
    stream = await bus.create("main.later", first_sequence=1000)
    assert (await stream.first(), await stream.head()) == (1000, 999)
    assert await stream.read(1000) == []
    with pytest.raises(BusGap):
        await stream.read(999)
    assert await publish(stream, "a", "b", expected_last=999) == 1001
    assert bodies(await stream.read(1000)) == ["a", "b"]


async def test_trimming_drops_what_is_below_and_reuses_no_sequence(rig: Rig, stream: Stream) -> None:
    await publish(stream, "a", "b", "c", "d")
    await stream.trim(3)
    await stream.trim(3)
    await stream.trim(1)
    assert (await stream.first(), await stream.head()) == (3, 4)
    assert bodies(await stream.read(3)) == ["c", "d"]
    await stream.trim(5)
    assert (await stream.first(), await stream.head()) == (5, 4)
    assert await stream.read(5) == []
    await stream.trim(50)
    assert (await stream.first(), await stream.head()) == (5, 4)
    if rig.server is not None:
        rig.server.kill()
        rig.server.start()
    again = await (await rig.connect()).open("main.orders")
    assert (await again.first(), await again.head()) == (5, 4)
    assert await publish(again, "e", expected_last=4) == 5


async def test_reading_below_the_first_message_is_a_gap(stream: Stream) -> None:
    await publish(stream, "a", "b", "c")
    await stream.trim(3)
    with pytest.raises(BusGap) as error:
        await stream.read(2)
    assert "frazil repair bus main.orders" in error.value.hint
    await stream.trim(4)
    with pytest.raises(BusGap):
        await stream.read(3)


async def test_reading_beyond_the_end_is_a_gap(stream: Stream) -> None:
    """Whoever read further than the stream reaches knows messages that the bus has lost."""
    await publish(stream, "a")
    with pytest.raises(BusGap) as error:
        await stream.read(3)
    assert "frazil repair bus main.orders" in error.value.hint


async def test_a_hole_inside_the_range_is_a_gap(rig: Rig, stream: Stream) -> None:
    await publish(stream, "a", "b", "c", "d")
    await damage(rig, 2)
    with pytest.raises(BusGap) as error:
        await stream.read(1)
    assert "frazil repair bus main.orders" in error.value.hint
    with pytest.raises(BusGap):
        await stream.read(2)
    assert bodies(await stream.read(3)) == ["c", "d"]


async def damage(rig: Rig, sequence: int) -> None:
    """Remove one message behind the back of the bus."""
    if rig.memory is not None:
        rig.memory.drop("main.orders", sequence)
    elif rig.kind == "nats":
        from nats import connect

        assert rig.server is not None
        client = await connect(
            rig.server.url, user=rig.server.credentials["user"], password=rig.server.credentials["password"]
        )
        assert await client.jetstream().delete_msg("frazil-main-orders", sequence)
        await client.close()
    else:
        import asyncpg

        assert rig.server is not None
        words = rig.server.credentials
        connection = await asyncpg.connect(rig.server.url, user=words["user"], password=words["password"])
        await connection.execute("delete from frazil_bus.message where sequence = $1", sequence)
        await connection.close()


# --- identity ---------------------------------------------------------------------------------------------------------


async def test_streams_are_made_found_listed_and_removed(bus: EventBus) -> None:
    assert await bus.names() == []
    with pytest.raises(StreamMissing):
        await bus.open("main.orders")
    made = await bus.create("main.orders")
    await bus.create("raw.clicks_2")
    with pytest.raises(Conflict):
        await bus.create("main.orders")
    assert await bus.names() == ["main.orders", "raw.clicks_2"]
    opened = await bus.open("main.orders")
    assert (opened.name, opened.identity) == ("main.orders", made.identity)
    await bus.delete("main.orders")
    await bus.delete("main.orders")
    assert await bus.names() == ["raw.clicks_2"]


async def test_a_stream_made_anew_has_another_identity(rig: Rig, bus: EventBus, stream: Stream) -> None:
    await publish(stream, "a", "b")
    other = await rig.connect()
    await other.delete("main.orders")
    with pytest.raises(StreamMissing):
        await publish(stream, "lost")
    with pytest.raises(StreamMissing):
        await stream.read(1)
    anew = await other.create("main.orders")
    assert anew.identity != stream.identity
    assert (await bus.open("main.orders")).identity == anew.identity
    for count in (1, 2):
        with pytest.raises(BusReplaced) as error:
            await publish(stream, *["stray"] * count)
        assert "frazil repair bus main.orders" in error.value.hint
    for call in (stream.head(), stream.first(), stream.read(1), stream.trim(1)):
        with pytest.raises(BusReplaced):
            await call
    assert await anew.head() == 0
    await publish(anew, "c")
    with pytest.raises(BusReplaced):
        await stream.read(1)


async def test_bad_input_is_refused_and_nothing_is_written(bus: EventBus, stream: Stream) -> None:
    for name in ("", "Orders", "a b", "a/b", "..", "a.*", "x" * 70):
        with pytest.raises(InvalidInput):
            await bus.create(name)
    for messages in (
        [],
        [Message(b"x" * (8 * MEGABYTE + 1))],
        [Message(b"x", {"Nats-Msg-Id": "y"})],
        [Message(b"x", {"a": "b\r\nc: d"})],
        [Message(b"x", {"": "b"})],
        [Message(b"x")] * 1001,
    ):
        with pytest.raises(InvalidInput):
            await stream.publish(messages, message_id=fresh())
    with pytest.raises(TooLarge):
        await stream.publish([Message(b"ok"), Message(b"x" * (8 * MEGABYTE + 1))], message_id=fresh())
    for message_id in ("", "a b", "a\n", "x" * 129):
        with pytest.raises(InvalidInput):
            await stream.publish(text("x"), message_id=message_id)
    assert await stream.head() == 0


# --- back-pressure ----------------------------------------------------------------------------------------------------


async def test_a_full_stream_refuses_writes_nothing_and_recovers_after_a_trim(rig: Rig) -> None:
    stream = await (await rig.connect(max_bytes=MEGABYTE)).create("main.small")
    block = Message(b"x" * 100_000)
    for _ in range(9):
        await stream.publish([block], message_id=fresh())
    for attempt in ([block] * 3, [block] * 2, [Message(b"x" * 300_000)]):
        with pytest.raises(Unavailable) as error:
            await stream.publish(attempt, message_id="again")
        assert (error.value.code, bool(error.value.hint)) == ("bus_full", True)
    assert (await stream.first(), await stream.head()) == (1, 9)
    await stream.trim(6)
    assert await stream.publish([block] * 3, message_id="again") == 12
    assert [delivery.sequence for delivery in await read_all(stream, 6)] == list(range(6, 13))


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_waiting_ends_when_the_head_moves(rig: Rig, stream: Stream) -> None:
    publisher = await (await rig.connect()).open("main.orders")
    waiting = [asyncio.create_task(stream.wait(above, timeout_seconds=PATIENCE_SECONDS)) for above in (0, 0, 2)]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in waiting)
    await publish(publisher, "a", "b")
    assert [1 <= head <= 2 for head in await asyncio.gather(*waiting[:2])] == [True, True]
    assert not waiting[2].done()
    await publish(publisher, "c")
    assert await waiting[2] == 3
    assert await stream.wait(0, timeout_seconds=30) == 3
    assert len(await stream.read(1)) == 3


async def test_a_waiter_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not find out when it looks again by itself, nor when its time is over: both come much later."""
    for module in (nats, postgres):
        monkeypatch.setattr(module, "LOOK_AGAIN_SECONDS", 100 * PATIENCE_SECONDS)
    stream = await (await rig.connect()).create("main.orders")
    publisher = await (await rig.connect()).open("main.orders")
    for number in range(21):
        waiting = asyncio.create_task(stream.wait(number, timeout_seconds=100 * PATIENCE_SECONDS))
        await asyncio.sleep(0.03)
        await publish(publisher, "x")
        assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == number + 1


async def test_waiting_ends_with_the_time(stream: Stream) -> None:
    await publish(stream, "a")
    started = time.perf_counter()
    assert await stream.wait(1, timeout_seconds=0.2) == 1
    assert time.perf_counter() - started >= 0.19
    assert await stream.wait(5, timeout_seconds=0) == 1
    assert await stream.wait(0, timeout_seconds=0) == 1


# --- crashes of the server --------------------------------------------------------------------------------------------


@pytest.fixture
def crashing(rig: Rig) -> Server:
    assert rig.server is not None
    return rig.server


with_a_server = pytest.mark.parametrize("rig", ["nats", "postgres"], indirect=True)


@with_a_server
async def test_what_was_acknowledged_survives_a_kill_of_the_server(crashing: Server, rig: Rig, stream: Stream) -> None:
    acknowledged: dict[int, str] = {}
    unknown: dict[str, str] = {}

    async def produce(producer: int) -> None:
        for number in range(100_000):
            body = f"{producer}.{number}"
            try:
                acknowledged[await publish(stream, body)] = body
            except Unavailable as error:
                unknown[body] = error.code
                return

    producers = [asyncio.create_task(produce(producer)) for producer in range(8)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(acknowledged) <= 50:
            await asyncio.sleep(0.01)
    await asyncio.to_thread(crashing.kill)
    await asyncio.wait_for(asyncio.gather(*producers), PATIENCE_SECONDS)
    await asyncio.to_thread(crashing.start)
    # The same handle works again by itself, and reads what the crash left.
    last = await until_available(lambda: publish(stream, "after"))
    found = {delivery.sequence: delivery.body.decode() for delivery in await read_all(stream, 1)}
    assert list(found) == list(range(1, last + 1))
    assert acknowledged.items() <= found.items()
    assert set(found.values()) - set(acknowledged.values()) - set(unknown) == {"after"}
    assert set(unknown.values()) == {"bus_unavailable"}
    assert len(set(found.values())) == len(found)
    assert (await (await rig.connect()).open("main.orders")).identity == stream.identity


@with_a_server
async def test_a_publish_while_the_server_is_away_fails_soon_and_is_not_sent_later(
    crashing: Server, stream: Stream
) -> None:
    await publish(stream, "a")
    await asyncio.to_thread(crashing.kill)
    for messages in (text("lost"), text("lost", "lost")):
        with pytest.raises(Unavailable) as error:
            await asyncio.wait_for(stream.publish(messages, message_id=fresh()), PATIENCE_SECONDS)
        assert error.value.code == "bus_unavailable"
        assert "not-a-secret" not in str(error.value)
    await asyncio.to_thread(crashing.start)
    assert await until_available(stream.head) == 1
    await asyncio.sleep(0.3)
    assert await publish(stream, "b") == 2


@pytest.mark.slow
@with_a_server
async def test_a_server_that_hangs_is_an_unknown_outcome_and_a_repeat_is_safe(
    crashing: Server, rig: Rig, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(stream, "a")
    # A connection that gives up sooner than the ones that serve.
    monkeypatch.setattr(nats, "REQUEST_SECONDS", 2.0)
    monkeypatch.setattr(postgres_connection, "_COMMAND_SECONDS", 3.0)
    stream = await (await rig.connect()).open("main.orders")
    crashing.pause()
    try:
        for messages, message_id in ((text("b"), "one"), (text("c", "d"), "two")):
            with pytest.raises(Unavailable) as error:
                await asyncio.wait_for(stream.publish(messages, message_id=message_id), PATIENCE_SECONDS)
            assert error.value.code == "bus_unavailable"
    finally:
        crashing.resume()
    await until_available(lambda: stream.publish(text("b"), message_id="one"))
    await until_available(lambda: stream.publish(text("c", "d"), message_id="two"))
    found = bodies(await read_all(stream, 1))
    assert sorted(found) == ["a", "b", "c", "d"]
    assert found.index("d") == found.index("c") + 1


@with_a_server
async def test_a_waiter_survives_a_restart_of_the_server(crashing: Server, rig: Rig, stream: Stream) -> None:
    await publish(stream, "a")
    waiting = asyncio.create_task(stream.wait(1, timeout_seconds=PATIENCE_SECONDS))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(crashing.kill)
    await asyncio.to_thread(crashing.start)
    other = await (await rig.connect()).open("main.orders")
    await publish(other, "b")
    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == 2


@with_a_server
async def test_a_message_id_is_remembered_across_a_crash(crashing: Server, stream: Stream) -> None:
    """The case for which it exists: the reply was lost in the crash, and the publisher tries again."""
    single = await stream.publish(text("a"), message_id="one")
    several = await stream.publish(text("b", "c"), message_id="two", expected_last=1)
    await asyncio.to_thread(crashing.kill)
    await asyncio.to_thread(crashing.start)
    assert await until_available(lambda: stream.publish(text("b", "c"), message_id="two", expected_last=1)) == several
    assert await stream.publish(text("a"), message_id="one") == single
    assert await stream.head() == 3


@pytest.mark.slow
@with_a_server
async def test_a_publish_of_several_messages_is_all_or_nothing_when_the_server_is_killed(
    crashing: Server, stream: Stream
) -> None:
    """Kills at random moments; `tests/bus/test_nats_batch.py` aims at the middle of a commit."""
    parts, lucky = 100, random.Random(7)
    done = 0
    for crash in range(6):
        acknowledged: dict[str, int] = {}

        async def produce(producer: str, told: dict[str, int] = acknowledged) -> None:
            for number in range(100_000):
                group = f"{producer}.{number}"
                messages = [
                    Message(random.randbytes(2000), {"group": group, "part": f"{part}/{parts}"})
                    for part in range(1, parts + 1)
                ]
                try:
                    told[group] = await stream.publish(messages, message_id=group)
                except Unavailable:
                    return

        # Several, so that the server is busy with one or the other commit at any moment.
        producers = [asyncio.create_task(produce(f"{crash}.{producer}")) for producer in range(6)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not acknowledged:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3 * lucky.random())
        assert not any(producer.done() for producer in producers)
        await asyncio.to_thread(crashing.kill)
        await asyncio.gather(*producers)
        await asyncio.to_thread(crashing.start)
        await until_available(stream.head)
        groups: dict[str, list[tuple[int, str]]] = {}
        for delivery in await read_all(stream, done + 1):
            groups.setdefault(delivery.headers["group"], []).append((delivery.sequence, delivery.headers["part"]))
        for group, members in groups.items():
            first = members[0][0]
            assert members == [(first + part - 1, f"{part}/{parts}") for part in range(1, parts + 1)], group
        for group, last in acknowledged.items():
            assert groups[group][-1][0] == last
        done = await stream.head()
        await stream.trim(done + 1)


async def until_available(ask: Callable[[], Awaitable[int]]) -> int:
    """The client connects again by itself; give it the time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await ask()
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
