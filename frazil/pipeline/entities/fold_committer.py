"""Fold committer of one entity: the events of its history that its base lacks are merged into it, exactly once.

It is the commit of `committer.py` with the history in the place of the stream: the base's watermark says what comes
next and moves in the same commit as the rows. A process that dies anywhere leaves nothing that its successor has to
know, and of two that fold the same range one is refused.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from frazil.crash import crash_point
from frazil.errors import Unavailable
from frazil.lake.catalog import (
    BATCH,
    FOLDED_ROWS,
    PREVIOUS_WATERMARK,
    WATERMARK,
    Entity,
    Lake,
    align_base,
    load_entity,
)
from frazil.lake.commit import Outcome, audit_fold, make_durable, publish_stage
from frazil.lake.maintenance import snapshots_over_budget
from frazil.pipeline.commit.target import CommitLost, expire, spark_errors
from frazil.pipeline.entities.fold_rule import changes, merge

log = logging.getLogger(__name__)
_TRIES = 5
_POOL = "maintenance"
_SUMMARY = "spark.sql.iceberg.snapshot-property"


@dataclass(frozen=True)
class FoldDone:
    """The result of one fold, as it is journalled."""

    rows: int
    keys: int
    new_keys: int
    late_keys: int
    snapshot_id: int
    watermark: int
    seconds: float


@dataclass(frozen=True)
class _Range:
    """Rows of the history, by position: the next ones to fold, at most so many at a time."""

    lo: int
    hi: int
    rows_below: int
    """How many rows the history has below `hi`."""


class FoldCommitter:
    """Folds one entity. Blocking calls, made from one thread at a time."""

    def __init__(
        self, lake: Lake, name: str, session: SparkSession, *, max_rows: int = 500_000, keep_seconds: float = 600.0
    ) -> None:
        self._lake = lake
        self._name = name
        self._session = session.newSession()
        self._max_rows = max_rows
        self._keep_seconds = keep_seconds

    def load(self) -> Entity:
        return load_entity(self._lake, self._name)

    def fold(self) -> FoldDone | None:
        """Fold what the base lacks. None when there was nothing, or when somebody else has done it."""
        started = time.monotonic()
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", _POOL)
        for _ in range(_TRIES):
            entity = self.load()
            if entity.base.watermark >= entity.history.watermark or not entity.unfolded_rows:
                return None
            base = align_base(self._lake, entity)
            outcome, done = self._once(Entity(base, entity.history), started)
            if outcome is Outcome.PUBLISHED:
                return done
            if outcome is not Outcome.STAGE_AGAIN:
                return None  # another process has folded this range
        raise Unavailable(f"{self._name} moves faster than it can be folded", code="stage_conflict")

    def _once(self, entity: Entity, started: float) -> tuple[Outcome, FoldDone | None]:
        base, span = entity.base, self._next_range(entity)
        batch = f"fold-{span.lo}-{span.hi}-{uuid.uuid4().hex[:8]}"
        events = self._events(entity, span)
        resolved = changes(events, base.spec.key).persist()
        try:
            crash_point("before_fold")
            with spark_errors(f"fold {self._name}", code="fold_failed"):
                newest = np.asarray(resolved.select("_seq").toArrow().column(0), dtype=np.int64)
                self._stage(resolved, entity, span, batch)
        except CommitLost:
            return Outcome.STAGE_AGAIN, None
        finally:
            resolved.unpersist()
        crash_point("after_fold_before_audit")
        staged = self._lake.table(self._name)
        if staged.snapshot_id != base.snapshot_id:
            return Outcome.STAGE_AGAIN, None
        folded = audit_fold(base, staged, batch, newest=newest)
        make_durable(staged, folded.snapshot)
        crash_point("after_fold_before_publish")
        published = publish_stage(self._lake, base, folded.snapshot, span.hi)
        crash_point("after_fold")
        return published.outcome, FoldDone(
            rows=span.rows_below - base.folded_rows,
            keys=folded.new_keys + folded.changed_keys,
            new_keys=folded.new_keys,
            late_keys=folded.late_keys,
            snapshot_id=folded.snapshot.snapshot_id,
            watermark=span.hi,
            seconds=time.monotonic() - started,
        )

    def _next_range(self, entity: Entity) -> _Range:
        """Up to the history's end, or to the first of its commits that makes it enough for one fold."""
        lo, most = entity.base.watermark, entity.base.folded_rows + self._max_rows
        for snapshot in reversed(entity.history.snapshots()):
            if snapshot.watermark is not None and snapshot.watermark > lo and snapshot.total_rows >= most:
                return _Range(lo, snapshot.watermark, snapshot.total_rows)
        return _Range(lo, entity.history.watermark, entity.history.rows)

    def _events(self, entity: Entity, span: _Range) -> DataFrame:
        """From the newest snapshot: the rows of a range stay what they are, and it has all columns of the base."""
        history = self._session.table(f"{self._lake.catalog.name}.{entity.history.name}")
        return history.where(f"_seq >= {span.lo} AND _seq < {span.hi}")

    def _stage(self, resolved: DataFrame, entity: Entity, span: _Range, batch: str) -> None:
        """Merge into a snapshot that nobody sees yet."""
        summary = {
            BATCH: batch,
            WATERMARK: str(span.hi),
            PREVIOUS_WATERMARK: str(span.lo),
            FOLDED_ROWS: str(span.rows_below),
        }
        self._session.conf.set("spark.wap.id", batch)
        for name, value in summary.items():
            self._session.conf.set(f"{_SUMMARY}.{name}", value)
        spec = entity.base.spec
        merge(resolved, f"{self._lake.catalog.name}.{self._name}", spec.row_schema().names, spec.key)

    def tidy(self, *, keep_snapshots: int) -> int:
        """Expire snapshots beyond the budget between two folds; returns how many."""
        table = self._lake.table(self._name)
        expired = snapshots_over_budget(
            table, budget=keep_snapshots, keep_seconds=self._keep_seconds, now=datetime.now(UTC)
        )
        if expired:
            with spark_errors(f"expire snapshots of {self._name}", code="expire_failed"):
                expire(self._session, f"{self._lake.catalog.name}.{self._name}", snapshots=expired)
        return len(expired)
