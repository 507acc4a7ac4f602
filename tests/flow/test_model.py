"""The commit protocol against a model: thousands of steps of publishing, committing, crashing and maintenance.

The committer, the dedupe index and the batch rules are the real ones; the bus and the table are in memory, so that
every interleaving can be reached and repeated. After each step the visible rows must be exactly those of the model
below the watermark; at the end all that was written is drained, and nothing may be lost, doubled or invented.

The examples are the same in every run; `make soak` searches with new ones each time.
What it finds stays here as a test with a name.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from frazil.errors import BusGap
from frazil.pipeline.commit import BatchLimits
from frazil.pipeline.commit.committer import Committed
from tests.flow.commit_machine import ALL, HOUR, STOPS, CommitMachine
from tests.flow.simulation import SteppedCommitter, run

SETTINGS = settings(
    max_examples=100,
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
)
ONE = BatchLimits(max_rows=1, max_bytes=4, max_age_seconds=0.0)


@pytest.mark.explore
def test_every_event_is_one_row_whatever_happens() -> None:
    class ReadAhead(SteppedCommitter):
        def used_ahead(self) -> None:
            Counted.steps["batches read ahead"] += 1

    class Counted(CommitMachine):
        committer_type: ClassVar[type[SteppedCommitter]] = ReadAhead
        killed_at: ClassVar[Counter[str]] = Counter()
        slept_at: ClassVar[Counter[str]] = Counter()
        steps: ClassVar[Counter[str]] = Counter()

    # Where a random search happens to miss a stop, it searches on.
    for examples in (SETTINGS.max_examples, 4 * SETTINGS.max_examples):
        run_state_machine_as_test(Counted, settings=settings(SETTINGS, max_examples=examples))
        if set(Counted.killed_at) == set(Counted.slept_at) == STOPS:
            break
    print(f"\n{dict(Counted.steps)}, killed at {dict(Counted.killed_at.most_common())}")
    assert Counted.steps["steps"] > 2000 and Counted.steps["batches read ahead"] > 20
    assert set(Counted.killed_at) == STOPS, "a stop was never killed at: the search misses it"
    assert set(Counted.slept_at) == STOPS, "no committer ever slept there while others went on"


@pytest.mark.parametrize("stop", sorted(STOPS))
def test_a_kill_at_each_stop_loses_and_doubles_nothing(stop: str) -> None:
    class Counted(CommitMachine):
        killed_at: ClassVar[Counter[str]] = Counter()

    world = Counted()
    for limits in (ALL, ONE):
        world.publish_backlog([("a",), ("b", "c"), ("a",)], 0)
        world.crash_at("a", limits, stop, ("d",))
        world.check()
        world.commit("b", ALL)
        world.check()
    world.teardown()
    assert Counted.killed_at[stop], "the stop was not reached"


@pytest.fixture
def world() -> CommitMachine:
    return CommitMachine()


@pytest.mark.parametrize("stop", ["before_stage", "after_stage_before_publish", "after_audit_before_publish"])
@pytest.mark.parametrize("others", [ONE, ALL])
def test_a_sleeper_that_was_overtaken_writes_nothing_twice(
    world: CommitMachine, stop: str, others: BatchLimits
) -> None:
    """It had judged its range before another committed a part of it: staging the same rows again doubles that part."""
    world.publish_backlog([("a",), ("b",)], 0)
    world.sleep_at("a", ALL, stop)
    world.commit("b", others)
    world.check()
    world.commit("a", ALL)
    world.check()
    world.teardown()


@pytest.mark.parametrize("stop", ["bus_first", "bus_read"])
def test_a_bus_that_another_committer_trimmed_has_no_gap(world: CommitMachine, stop: str) -> None:
    world.publish_backlog([("a",), ("b",)], 0)
    world.sleep_at("a", ALL, stop)
    world.commit("b", ALL)
    world.commit("a", ALL)
    assert world.actors["a"].last is None
    world.teardown()


def test_a_bus_that_a_hand_trimmed_has_a_gap(world: CommitMachine) -> None:
    world.publish_backlog([("a",), ("b",)], 0)
    world.sleep_at("a", ALL, "bus_read")
    run(world.world.stream.trim(2))
    with pytest.raises(BusGap):
        world.commit("a", ALL)


def test_a_clock_that_is_late_repeats_what_is_older_than_the_first_batch_needed(world: CommitMachine) -> None:
    """The ids were read from the table for a batch of now; the next batch is from a gateway half an hour behind."""
    world.publish_events(("a",), 0)
    world.commit("a", ALL)
    world.let_time_pass(2.25)
    world.publish_events(("b",), 0)
    world.commit("b", ALL)
    world.publish_events(("a",), HOUR // 2)
    world.commit("b", ALL)
    done = world.actors["b"].last
    assert isinstance(done, Committed) and (done.rows, done.duplicates) == (0, 1)
    world.check()


def test_a_clock_that_is_far_ahead_does_not_make_the_index_forget(world: CommitMachine) -> None:
    world.publish_events(("a", "b"), 0)
    world.commit("a", ALL)
    world.publish_backlog([("c", "d", "e", "f")], -50 * HOUR)
    world.commit("a", ALL)
    world.publish_events(("a",), 0)
    world.commit("a", ALL)
    world.check()


def test_a_batch_without_events_does_not_decide_which_ids_are_known(world: CommitMachine) -> None:
    """Only a group that broke off: nothing to judge, and no time of receipt to read the ids of the table by."""
    world.publish_events(("a",), 0)
    world.commit("a", ALL)
    world.publish(world.group([("x",), ("y",)], 0)[:1])
    world.publish(world.group([("a",), ("z",)], 0))
    world.commit("b", ONE)
    done = world.actors["b"].last
    assert isinstance(done, Committed) and (done.rows, done.messages) == (0, 1)
    world.commit("b", ONE)
    world.check()
    world.teardown()


def test_a_group_sent_again_after_it_broke_off_counts_once(world: CommitMachine) -> None:
    group = world.group([("a",), ("b",), ("c",)], 0)
    world.publish(group[:2])
    world.publish(group)
    world.commit("a", ALL)
    assert [row.id for row in world.world.rows()] == ["a", "b", "c"]
    world.publish(group)
    world.commit("a", ALL)
    world.check()
