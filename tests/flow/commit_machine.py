"""The state machine: producers, two committers and a sleeper, maintenance and accidents around one table."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from frazil.bus import Message
from frazil.bus.memory import MemoryBus
from frazil.errors import BusGap, BusReplaced, FrazilError, Unavailable, WatermarkTorn
from frazil.events import ROWS, IdWindow, encode, first_position, sequence_of
from frazil.events.batch import GROUP, PART
from frazil.events.declaration import parse_table
from frazil.pipeline.commit import BatchLimits
from tests.flow.memory_target import MemoryCatalog, MemoryTarget
from tests.flow.simulation import Actor, SteppedCommitter, SteppedStream, SteppedTarget, run
from tests.flow.stream_model import Expected, Sent, expected_rows, undecided_from
from tests.lake_fixtures import events

SPEC = parse_table({"name": "t", "columns": {"v": "long"}})
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600 * 1_000_000
WINDOW_SECONDS = 7200.0
WINDOW_US = 2 * HOUR

STOPS = frozenset(
    "blocking_call bus_first bus_head bus_wait bus_read bus_trim before_stage after_stage_before_publish "
    "after_audit_before_publish before_publish after_publish_before_reload after_publish_before_trim".split()
)
FAULTS = "load stage stage_reply publish publish_reply read wait trim trim_reply".split()

ids = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4).map(tuple)
# Mostly now; sometimes a gateway's clock is late, up to longer than the window and the index's tolerance together.
lateness = st.sampled_from([0, 0, 0, 1, HOUR // 2, 2 * HOUR - 1, 2 * HOUR, 5 * HOUR])
actors = st.sampled_from(["a", "b", "sleeper"])
stops = st.sampled_from(sorted(STOPS))
limits = st.builds(
    BatchLimits,
    max_rows=st.sampled_from([1, 3, 1000]),
    # A quarter of this is one read: one message at a time, a few, or all.
    max_bytes=st.sampled_from([4, 8000, 32 << 20]),
    max_age_seconds=st.just(0.0),
)
ALL = BatchLimits(max_age_seconds=0.0)


class World:
    """What outlives every committer: the bus and the table. A copy of it can be damaged without harm."""

    def __init__(self) -> None:
        self.clock = [0.0]
        clock = self.clock
        self.bus = MemoryBus(clock=lambda: clock[0])
        self.stream = run(self.bus.create("t"))
        self.catalog = MemoryCatalog(SPEC, stream="t", identity=self.stream.identity, watermark=first_position(1))
        self.faults: list[str] = []

    def rows(self) -> list[Expected]:
        return sorted(
            Expected(row[0], row[1], (row[4] - EPOCH) // timedelta(microseconds=1), row[8])
            for row in self.catalog.table.rows
        )

    @property
    def committed(self) -> int:
        """The sequence that the watermark stands before."""
        return sequence_of(self.catalog.table.watermark)


class CommitMachine(RuleBasedStateMachine):
    target_type: ClassVar[type[MemoryTarget]] = SteppedTarget
    committer_type: ClassVar[type[SteppedCommitter]] = SteppedCommitter
    window_type: ClassVar[type[IdWindow]] = IdWindow
    killed_at: ClassVar[Counter[str]] = Counter()
    slept_at: ClassVar[Counter[str]] = Counter()
    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.sent: list[Sent] = []
        self.now_us = 100 * HOUR
        self.numbers = 0
        self.watermark = first_position(1)
        self.at: dict[str, str] = {}
        self.actors = {name: self.actor(self.world) for name in ("a", "b", "sleeper")}

    def actor(self, world: World) -> Actor:
        def start() -> SteppedCommitter:
            return self.committer_type(
                self.target_type(world.catalog),
                SteppedStream(world.stream, world.faults),
                window_seconds=WINDOW_SECONDS,
                make_window=lambda: self.window_type(WINDOW_SECONDS),
            )

        return Actor(start, accepted=lambda error: error.transient)

    # Producers

    def message(self, ids: Sequence[str], late_us: int, group: str = "", part: int = 1, parts: int = 1) -> Sent:
        values = tuple(range(self.numbers, self.numbers + len(ids)))
        self.numbers += len(ids)
        return Sent(tuple(ids), self.now_us - late_us, values, group, part, parts)

    def group(self, contents: Sequence[Sequence[str]], late_us: int) -> list[Sent]:
        name = f"g{self.numbers}"
        return [self.message(ids, late_us, name, at + 1, len(contents)) for at, ids in enumerate(contents)]

    def publish(self, messages: Sequence[Sent], message_id: str = "") -> None:
        """Put the messages into the stream, and into the model, which knows where they must be."""
        self.numbers += 1
        last = run(
            self.world.stream.publish([encoded(m) for m in messages], message_id=message_id or f"m{self.numbers}")
        )
        self.sent += messages
        assert last == len(self.sent)

    @rule(ids=ids, late=lateness)
    def publish_events(self, ids: tuple[str, ...], late: int) -> None:
        self.publish([self.message(ids, late)])

    def publish_backlog(self, several: list[tuple[str, ...]], late: int) -> None:
        for ids in several:
            self.publish([self.message(ids, late)])

    @rule(contents=st.lists(ids, min_size=2, max_size=4), late=lateness)
    def publish_group(self, contents: list[tuple[str, ...]], late: int) -> None:
        self.publish(self.group(contents, late))

    @rule(contents=st.lists(ids, min_size=2, max_size=4), late=lateness, data=st.data())
    def publish_group_that_breaks_off(self, contents: list[tuple[str, ...]], late: int, data: st.DataObject) -> None:
        """A power cut took the end of the group; the producer had no receipt and may send all of it again."""
        group = self.group(contents, late)
        self.publish(group[: data.draw(st.integers(1, len(group) - 1))])
        if data.draw(st.booleans()):
            self.publish(group)

    @rule(contents=st.lists(ids, min_size=2, max_size=4), late=lateness)
    def publish_group_in_two_halves(self, contents: list[tuple[str, ...]], late: int) -> None:
        """A bus without atomic writes: a committer may read between the two, and must wait for the rest."""
        group = self.group(contents, late)
        self.publish(group[:1])
        self.actors["a"].finish(ALL)
        self.check()
        self.publish(group[1:])

    @rule(ids=ids, late=lateness, again=st.sampled_from(["same message id", "after the duplicate window", "never"]))
    def publish_without_reply(self, ids: tuple[str, ...], late: int, again: str) -> None:
        message = self.message(ids, late)
        self.numbers += 1
        self.world.bus.lose_replies = 1
        with pytest.raises(Unavailable):
            run(self.world.stream.publish([encoded(message)], message_id=f"m{self.numbers}"))
        self.sent.append(message)
        if again == "same message id":
            last = run(self.world.stream.publish([encoded(message)], message_id=f"m{self.numbers}"))
            assert last == len(self.sent)
        elif again == "after the duplicate window":
            self.world.clock[0] += 1000.0
            self.publish([message], message_id=f"m{self.numbers}")

    @rule(hours=st.sampled_from([0.001, 1, 2, 4]))
    def let_time_pass(self, hours: float) -> None:
        self.now_us += int(hours * HOUR)

    # Committers

    @rule(actor=actors, limits=limits)
    def commit_cycle(self, actor: str, limits: BatchLimits) -> None:
        self.commit(actor, limits)

    def commit(self, actor: str, limits: BatchLimits) -> None:
        """A cycle from beginning to end, or the rest of one."""
        self.actors[actor].finish(limits)
        self.at.pop(actor, None)

    @rule(actor=actors, limits=limits, number=st.integers(1, 12))
    def go_on(self, actor: str, limits: BatchLimits, number: int) -> None:
        for _ in range(number):
            self.step(actor, limits)

    @rule(actor=actors, limits=limits, stop=stops)
    def sleep_at(self, actor: str, limits: BatchLimits, stop: str) -> None:
        """Go on until this point, and stay there while the others go on."""
        for _ in range(200):
            if self.step(actor, limits) in (stop, None):
                break

    @rule(stop=stops, limits=limits, others=limits, several=st.lists(ids, min_size=1, max_size=4))
    def overtake(self, stop: str, limits: BatchLimits, others: BatchLimits, several: list[tuple[str, ...]]) -> None:
        """One falls asleep on its way, another commits, with other borders of its batches perhaps; the first wakes."""
        self.publish_backlog(several, 0)
        self.sleep_at("a", limits, stop)
        self.commit("b", others)
        self.check()
        self.commit("a", limits)

    def step(self, actor: str, limits: BatchLimits) -> str | None:
        stop = self.actors[actor].step(limits)
        self.at.pop(actor, None)
        if stop is not None:
            self.at[actor] = stop
            self.slept_at[stop] += 1
        return stop

    @rule(actor=actors, limits=limits, stop=stops, ids=ids)
    def crash_at(self, actor: str, limits: BatchLimits, stop: str, ids: tuple[str, ...]) -> None:
        self.publish_events(ids, 0)
        self.sleep_at(actor, limits, stop)
        self.restart(actor)

    @rule(actor=actors)
    def restart(self, actor: str) -> None:
        """A kill, wherever it is, and a new process that knows nothing."""
        self.actors[actor].kill()
        if stop := self.at.pop(actor, None):
            self.killed_at[stop] += 1

    @rule(fault=st.sampled_from(FAULTS))
    def fail_soon(self, fault: str) -> None:
        """The next request of this kind fails, before or after it took effect."""
        faults = self.world.catalog.faults if fault in FAULTS[:5] else self.world.faults
        faults[:] = [fault]

    # Maintenance

    @rule(what=st.sampled_from(["compact", "compact", "expire one", "expire all", "tidy", "trim"]))
    def maintain(self, what: str) -> None:
        if what == "compact":
            self.world.catalog.compact()
        elif what == "trim":
            run(self.world.stream.trim(self.world.committed))
        elif what == "tidy":
            with contextlib.suppress(Unavailable):
                MemoryTarget(self.world.catalog).tidy(keep_snapshots=2)
        else:
            self.world.catalog.expire(1 if what == "expire one" else 1000)

    # Accidents, on a copy of the world: they must be refused, and change nothing

    @rule(data=st.data(), what=st.sampled_from(["purge", "replace", "lose the end", "roll back"]))
    def accident(self, data: st.DataObject, what: str) -> None:
        world = self.copied()
        table, committed = world.catalog.table, world.committed
        if what == "replace":
            world.stream = run(world.bus.replace("t", first_sequence=data.draw(st.sampled_from([1, committed]))))
            self.refused(world, BusReplaced)
        elif what == "purge" and committed <= len(self.sent):
            run(world.stream.trim(data.draw(st.integers(committed + 1, len(self.sent) + 1))))
            self.refused(world, BusGap)
        elif what == "lose the end" and committed > 1:
            world.bus.cut_end("t", data.draw(st.integers(0, committed - 2)))
            self.refused(world, BusReplaced)
        elif what == "roll back":
            older = [s.snapshot_id for s in table.ancestors() if len(s.rows) < len(table.rows)]
            if older:
                world.catalog.roll_back(data.draw(st.sampled_from(older)))
                world.catalog.expire(data.draw(st.sampled_from([0, 1000])))
                self.refused(world, WatermarkTorn)

    def refused(self, world: World, error: type[FrazilError]) -> None:
        before = world.catalog.table
        with pytest.raises(error):
            self.actor(world).finish(ALL)
        assert world.catalog.table == before

    def copied(self) -> World:
        # The committers stay behind: whoever has begun a cycle does not notice that the ground was exchanged.
        world = World()
        world.bus = copy.deepcopy(self.world.bus)
        world.stream = run(world.bus.open("t"))
        world.catalog = copy.copy(self.world.catalog)
        world.catalog.faults = []
        return world

    # What must be true

    @invariant()
    def check(self) -> None:
        self.steps["steps"] += 1
        table = self.world.catalog.table
        assert table.watermark >= self.watermark, "the watermark went back"
        self.watermark = table.watermark
        assert table.marked_watermark() in (None, table.watermark)
        committed = self.world.committed
        assert committed <= undecided_from(self.sent), "a group was judged before it was whole"
        assert self.world.rows() == [row for row in self.expected() if row.seq < table.watermark]
        kept = run(self.world.stream.read(committed, max_messages=1_000_000, max_bytes=1 << 60))
        assert [delivery.sequence for delivery in kept] == list(range(committed, len(self.sent) + 1))

    def teardown(self) -> None:
        """Wake whoever sleeps, then drain: nothing lost, nothing doubled, nothing invented."""
        for actor in self.actors.values():
            if actor.busy:
                actor.finish(ALL)
                self.check()
        self.world.faults.clear()
        self.world.catalog.faults.clear()
        self.publish([self.message(["last"], 0)])
        last = self.actor(self.world)
        while self.world.committed <= len(self.sent):
            before = self.world.committed
            last.finish(ALL)
            assert self.world.committed > before, f"no progress: {last.last}"
        assert self.world.rows() == self.expected()

    def expected(self) -> list[Expected]:
        return expected_rows(self.sent, WINDOW_US)


def encoded(message: Sent) -> Message:
    at = EPOCH + timedelta(microseconds=message.received_us)
    batch: pa.RecordBatch = events(SPEC, list(message.ids), received_at=at, v=list(message.values))
    headers = {ROWS: str(len(message.ids))}
    if message.group:
        headers |= {GROUP: message.group, PART: f"{message.part}/{message.parts}"}
    return Message(encode([batch]), headers)
