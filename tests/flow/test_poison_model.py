"""The commit protocol with rows that cannot be staged, against the model: good rows are committed, each of the others
is one dead letter, and the watermark moves over both, whatever is killed or overtaken on the way.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from frazil.events import first_position, sequence_of
from frazil.events.positions import position
from frazil.pipeline.commit.committer import Committed
from tests.flow.commit_machine import ALL, STOPS, WINDOW_US, CommitMachine
from tests.flow.stream_model import Expected, counts, expected_rows
from tests.flow.test_model import ONE, SETTINGS

POISON = "f"
LETTER_STOPS = frozenset(["before_dead_letters_publish", "after_dead_letters_publish"])


class PoisonMachine(CommitMachine):
    """The world of `CommitMachine`, where no event of the id `f` can be staged."""

    killed_at: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world.catalog.poison = lambda event_id: event_id == POISON

    def expected(self) -> list[Expected]:
        return [row for row in expected_rows(self.sent, WINDOW_US) if row.id != POISON]

    @rule(stop=st.sampled_from(sorted(LETTER_STOPS)), others=st.sampled_from([ONE, ALL]), kill=st.booleans())
    def stop_amid_dead_letters(self, stop: str, others: object, kill: bool) -> None:
        """One stops while it writes dead letters; another commits the range; the first is killed, or wakes."""
        self.publish_events(("a", POISON), 0)
        self.sleep_at("a", ALL, stop)
        if kill:
            self.restart("a")
        self.commit("b", others)  # type: ignore[arg-type]
        self.check_letters()
        self.commit("a", ALL)

    @invariant()
    def check_letters(self) -> None:
        found = [letter.position for letter in self.world.catalog.letters]
        assert len(set(found)) == len(found), "an event has two dead letters"
        received = {
            position(at + 1, index): message.received_us
            for at, message in enumerate(self.sent)
            for index, event_id in enumerate(message.ids)
            if event_id == POISON and counts(self.sent, at)
        }
        assert set(found) <= set(received), "a good event is a dead letter"
        for at, moment in received.items():
            # One that repeats a dead letter of its own batch is the duplicate that it is.
            repeats = any(letter < at and moment - received[letter] < WINDOW_US for letter in found)
            assert at >= self.world.catalog.table.watermark or at in found or repeats, "an event is nowhere"


def test_every_event_is_one_row_or_one_dead_letter_whatever_happens() -> None:
    run_state_machine_as_test(PoisonMachine, settings=settings(SETTINGS, max_examples=SETTINGS.max_examples // 4))
    assert set(PoisonMachine.killed_at) >= LETTER_STOPS, "a stop was never killed at: the search misses it"


@pytest.mark.parametrize("stop", sorted(STOPS | LETTER_STOPS))
def test_a_kill_at_each_stop_leaves_one_dead_letter(stop: str) -> None:
    class Counted(PoisonMachine):
        killed_at: ClassVar[Counter[str]] = Counter()

    world = Counted()
    world.publish_backlog([("a",), ("b", POISON, "c"), ("d",)], 0)
    world.crash_at("a", ALL, stop, ("e",))
    world.check_letters()
    world.commit("b", ALL)
    world.check()
    world.check_letters()
    world.teardown()
    assert [letter.position for letter in world.world.catalog.letters] == [position(2, 1)]
    assert Counted.killed_at[stop], "the stop was not reached"


def test_good_events_before_and_after_a_poisonous_one_are_committed_with_it_out_of_the_way() -> None:
    world = PoisonMachine()
    world.publish_backlog([("a", "b"), ("c", POISON), ("d",)], 0)
    world.commit("a", ALL)
    done = world.actors["a"].last
    assert isinstance(done, Committed) and (done.rows, done.dead_letters, done.duplicates) == (4, 1, 0)
    assert [row.id for row in world.world.rows()] == ["a", "b", "c", "d"]
    [letter] = world.world.catalog.letters
    assert (letter.position, letter.id, letter.op) == (position(2, 1), POISON, "insert")
    assert letter.data == f'{{"v":{world.sent[1].values[1]}}}'
    assert letter.code == "stage_failed" and POISON in letter.reason
    assert not [s for s in world.world.catalog.table.snapshots.values() if s.summary.get("wap.id") == "attempt"]


def test_a_dead_id_counts_once_when_it_is_sent_again_after_repair() -> None:
    world = PoisonMachine()
    world.publish_events((POISON,), 0)
    world.commit("a", ALL)
    world.world.catalog.poison = lambda event_id: False
    world.publish_events((POISON,), 0)
    world.publish_events((POISON,), 0)
    world.commit("a", ALL)
    assert [(row.id, sequence_of(row.seq)) for row in world.world.rows()] == [(POISON, 2)]
    assert len(world.world.catalog.letters) == 1


def test_what_has_a_dead_letter_is_no_row_even_where_it_could_be_committed_by_now() -> None:
    """The process was killed between the dead letters and the commit, and the cause was repaired before the next."""
    world = PoisonMachine()
    world.publish_backlog([("a", POISON)], 0)
    world.crash_at("a", ALL, "after_dead_letters_publish", ("b",))
    world.world.catalog.poison = lambda event_id: False
    world.commit("b", ALL)
    assert [row.id for row in world.world.rows()] == ["a", "b"]
    assert [letter.id for letter in world.world.catalog.letters] == [POISON]


@pytest.mark.parametrize("fault", ["stage", "stage_reply", "load"])
def test_trouble_of_the_store_makes_no_dead_letters(fault: str) -> None:
    """Also where it comes amid the halving of a batch that has a poisonous row."""
    world = PoisonMachine()
    world.publish_backlog([("a", "b"), ("c", POISON)], 0)
    for stops in range(4, 60):
        for _ in range(stops):
            if world.step("a", ALL) is None:
                break
        world.world.catalog.faults[:] = [fault]
        world.commit("a", ALL)
        world.world.catalog.faults.clear()
        world.check()
        world.check_letters()
    world.commit("a", ALL)
    assert [letter.id for letter in world.world.catalog.letters] == [POISON]
    assert world.world.catalog.table.watermark == first_position(3)


def test_where_nothing_can_be_staged_nothing_is_a_dead_letter() -> None:
    """A table whose store refuses every row, also one without values, is not to blame on its events."""
    world = PoisonMachine()
    world.world.catalog.poison = lambda event_id: True
    world.publish_backlog([("a", "b"), ("c",)], 0)
    world.commit("a", ALL)
    assert isinstance(world.actors["a"].last, Exception)
    assert not world.world.catalog.letters and world.world.catalog.table.watermark == first_position(1)
    world.world.catalog.poison = lambda event_id: False
    world.teardown()
