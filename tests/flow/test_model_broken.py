"""The state machine must be able to fail: each way of getting the protocol wrong is found within a few examples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from frazil.bus import Delivery
from frazil.errors import FrazilError, Unavailable
from frazil.events import IS_NEW, IdWindow, Ints, Keys, StreamMessage
from frazil.events.batch import GROUP
from frazil.lake.catalog import WATERMARK
from frazil.lake.catalog.table import WATERMARK_SEQUENCE
from frazil.lake.commit import Outcome
from frazil.pipeline.commit import committer
from frazil.pipeline.commit.target import TableState
from tests.flow.commit_machine import CommitMachine
from tests.flow.memory_target import CatalogConflict, CommitSteps, MemorySnapshot, MemoryTable
from tests.flow.simulation import SteppedCommitter, SteppedTarget

FEW = settings(
    max_examples=150,
    stateful_step_count=60,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


class NoDedupe(IdWindow):
    def judge(self, keys: Keys, received_us: Ints) -> Ints:
        return np.full(len(keys), IS_NEW, dtype=np.int64)


class ForgetsSilently(IdWindow):
    """Believes that what it has forgotten will not be needed."""

    def covers(self, received_us: Ints) -> bool:
        return True


class NoCompare(SteppedTarget):
    """Publishes on top of whatever main is now."""

    def publish(self, base: MemoryTable, snapshot: MemorySnapshot, watermark: int) -> CommitSteps:
        yield "before_publish"
        with contextlib.suppress(CatalogConflict):
            self.swap(self.catalog.table, snapshot, watermark)
        return Outcome.PUBLISHED, self.catalog.table


class LibraryRetries(SteppedTarget):
    """A conflict is answered by appending the same rows to the new state, as table libraries do by themselves."""

    def publish(self, base: MemoryTable, snapshot: MemorySnapshot, watermark: int) -> CommitSteps:
        yield "before_publish"
        if self.catalog.table.snapshot_id != base.snapshot_id:
            new = snapshot.rows[len(snapshot.rows) - snapshot.added :]
            rebased = self.catalog._add(self.catalog.table.rows + new, snapshot.added, snapshot.summary)
            snapshot, base = self.catalog.table.snapshots[rebased], self.catalog.table
        with contextlib.suppress(CatalogConflict):
            self.swap(base, snapshot, watermark)
        return Outcome.PUBLISHED, self.catalog.table


class WatermarkAfterwards(SteppedTarget):
    """Rows first, then the watermark: two commits."""

    def publish(self, base: MemoryTable, snapshot: MemorySnapshot, watermark: int) -> CommitSteps:
        yield "before_publish"
        with contextlib.suppress(CatalogConflict):
            main, to = base.snapshot_id, snapshot.snapshot_id
            self.catalog.swap(uuid=base.uuid, main=main, to=to, properties={})
            yield "between"
            mark = {WATERMARK: str(watermark), WATERMARK_SEQUENCE: str(snapshot.sequence_number)}
            self.catalog.swap(uuid=base.uuid, main=to, to=to, properties=mark)
        return Outcome.PUBLISHED, self.catalog.table


class NoReplyIsYes(SteppedTarget):
    """Takes a publish without an answer for one that went well."""

    def publish(self, base: MemoryTable, snapshot: MemorySnapshot, watermark: int) -> CommitSteps:
        yield "before_publish"
        try:
            self.swap(base, snapshot, watermark)
        except CatalogConflict:
            return Outcome.STAGE_AGAIN, self.catalog.table
        except Unavailable:
            properties = {**base.properties, WATERMARK: str(watermark)}
            guess = replace(base, snapshots={1: replace(snapshot, summary={})}, snapshot_id=1, properties=properties)
            return Outcome.PUBLISHED, guess
        return Outcome.PUBLISHED, self.catalog.table


class TrimsWhatItRead(SteppedCommitter):
    """Takes reading for keeping."""

    async def _collect(self, lo: int, *, idle_seconds: float, draining: bool) -> list[Delivery]:
        deliveries = await super()._collect(lo, idle_seconds=idle_seconds, draining=draining)
        await self._stream.trim(lo + len(deliveries))
        return deliveries


class TrustsItsMemory(SteppedCommitter):
    """Keeps its ids without looking at whose watermark they belong to."""

    def _window_at(self, base: TableState, received: Ints) -> IdWindow:
        return self._ids[1] if self._ids else super()._window_at(base, received)


class ChecksNothing(SteppedCommitter):
    async def _check(self, base: TableState) -> None:
        return None


@pytest.mark.parametrize(
    "broken",
    [
        {"window_type": NoDedupe},
        {"window_type": ForgetsSilently},
        {"target_type": NoCompare},
        {"target_type": LibraryRetries},
        {"target_type": WatermarkAfterwards},
        {"target_type": NoReplyIsYes},
        {"committer_type": TrimsWhatItRead},
        {"committer_type": TrustsItsMemory},
        {"committer_type": ChecksNothing},
    ],
    ids=lambda broken: next(iter(broken.values())).__name__,
)
def test_a_broken_part_is_found(broken: dict[str, type]) -> None:
    found(type("BrokenMachine", (CommitMachine,), dict(broken)))


def every_part_counts(deliveries: Sequence[StreamMessage]) -> tuple[list[StreamMessage], int]:
    return list(deliveries), deliveries[-1].sequence + 1 if deliveries else 0


def one_run_of_a_name_is_one_group(deliveries: Sequence[StreamMessage]) -> tuple[list[StreamMessage], int]:
    """Drops a group whose producer sent it again right after it broke off."""
    alone = [delivery for delivery in deliveries if GROUP not in delivery.headers]
    return alone, deliveries[-1].sequence + 1 if deliveries else 0


@pytest.mark.parametrize("rule", [every_part_counts, one_run_of_a_name_is_one_group])
def test_a_broken_rule_for_groups_is_found(monkeypatch: pytest.MonkeyPatch, rule: Callable[..., object]) -> None:
    monkeypatch.setattr(committer, "complete_messages", rule)
    found(CommitMachine)


def found(machine: type[CommitMachine]) -> None:
    with pytest.raises((AssertionError, FrazilError, pytest.fail.Exception)):
        run_state_machine_as_test(machine, settings=FEW)
