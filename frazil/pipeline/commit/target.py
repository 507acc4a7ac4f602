"""Commit target: a table that a committer stages to and publishes, exactly once per range of the stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Protocol

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyarrow.parquet import write_table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from frazil.crash import crash_point
from frazil.errors import Unavailable
from frazil.events.declaration import TableSpec, count_partitions
from frazil.lake.catalog import BATCH, PREVIOUS_WATERMARK, WATERMARK, Lake, LakeTable
from frazil.lake.commit import Outcome, audit, make_durable, publish_stage
from frazil.lake.derived import DeadLetter, add_dead_letters, dead_letters_table, dead_positions
from frazil.lake.maintenance import snapshots_over_budget
from frazil.pipeline.commit.row_errors import RowsRefused, may_be_of_rows

_ATTEMPT = "attempt-"


class TableState(Protocol):
    """The state of a table that a committer decides by."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> TableSpec: ...
    @property
    def watermark(self) -> int: ...
    @property
    def stream(self) -> str: ...
    @property
    def stream_identity(self) -> str: ...
    @property
    def snapshot_id(self) -> int | None: ...


@dataclass
class CommitTimes:
    """The time that a target spent on a range, over all its tries."""

    stage_seconds: float = 0.0
    publish_seconds: float = 0.0
    """Audit, fsync and swap."""


@dataclass(frozen=True)
class Commit:
    """One range of the stream on its way into the table."""

    batch: str
    previous_watermark: int
    watermark: int
    rows: pa.Table
    times: CommitTimes = field(default_factory=CommitTimes, compare=False)
    """The target adds to it."""

    def summary(self) -> dict[str, str]:
        """The fields that the snapshot's summary gets."""
        return {
            BATCH: self.batch,
            WATERMARK: str(self.watermark),
            PREVIOUS_WATERMARK: str(self.previous_watermark),
        }


class CommitTarget(Protocol):
    """Blocking calls, made from one thread at a time."""

    def load(self) -> TableState:
        """The table as it is now. Raises `WatermarkTorn` when its watermark was not moved by frazil."""

    def ids_since(self, received_at: datetime) -> Iterator[pa.RecordBatch]:
        """`_id`, `_seq`, `_received_at` of the committed rows received since then."""

    def commit(self, base: TableState, commit: Commit) -> tuple[Outcome, TableState]:
        """Stage, audit and publish the rows on top of `base`; visible with their watermark, or not at all."""

    def attempt(self, rows: pa.Table) -> None:
        """Stage these rows for nobody. Raises as `commit` does: `RowsRefused` where it may be because of the rows."""

    def forget_attempts(self) -> None:
        """Expire the snapshots that attempts have left."""

    def dead_positions(self, base: TableState) -> set[int]:
        """The positions at or above the watermark that have a dead letter already."""

    def add_dead_letters(self, base: TableState, letters: Sequence[DeadLetter]) -> int:
        """Write those that are not written yet, if the table is still at `base`; how many."""

    def tidy(self, *, keep_snapshots: int) -> int:
        """Expire snapshots beyond the budget; returns how many."""


class SparkCommitTarget:
    """A table of the lake, staged by Spark in a session of its own, where the catalog has the lake's name for it."""

    def __init__(self, lake: Lake, name: str, session: SparkSession, *, keep_seconds: float = 600.0) -> None:
        """Files that compaction replaced are kept for `keep_seconds`: a running reader may need them."""
        self._lake = lake
        self._name = name
        self._keep_seconds = keep_seconds
        self._spark_name = f"{lake.catalog.name}.{name}"
        self._session = session.newSession()
        self._loaded: LakeTable | None = None

    def load(self) -> LakeTable:
        self._loaded = self._lake.table(self._name)
        return self._loaded

    def ids_since(self, received_at: datetime) -> Iterator[pa.RecordBatch]:
        yield from (self._loaded or self.load()).ids_since(received_at)

    def commit(self, base: TableState, commit: Commit) -> tuple[Outcome, TableState]:
        table = base if isinstance(base, LakeTable) else self.load()
        crash_point("before_stage")
        began = time.monotonic()
        try:
            self._stage(commit.rows, commit.batch, commit.summary())
        except CommitLost:  # maintenance committed while Spark was writing: as if it had done so a moment later
            return Outcome.STAGE_AGAIN, self._lake.table(self._name)
        finally:
            commit.times.stage_seconds += time.monotonic() - began
        crash_point("after_stage_before_publish")
        began = time.monotonic()
        staged = self._lake.table(self._name)
        if staged.snapshot_id != table.snapshot_id:
            return Outcome.STAGE_AGAIN, staged
        snapshot = audit(table, staged, commit.batch, rows=commit.rows.num_rows)
        make_durable(staged, snapshot)
        crash_point("after_audit_before_publish")
        published = publish_stage(self._lake, table, snapshot, commit.watermark, staged=staged)
        commit.times.publish_seconds += time.monotonic() - began
        crash_point("after_publish_before_trim")
        return published.outcome, published.table

    def _stage(self, rows: pa.Table, batch: str, summary: Mapping[str, str]) -> None:
        doing = f"stage {self._name}"
        try:
            with spark_errors(doing, code="stage_failed"):
                spec = (self._loaded or self.load()).spec
                stage(
                    self._session,
                    self._spark_name,
                    rows,
                    wap_id=batch,
                    summary=summary,
                    clustered=is_spread(spec, rows),
                )
        except CommitLost:
            raise
        except Exception as error:
            if may_be_of_rows(error):
                raise RowsRefused.after(error, doing) from error
            raise

    def attempt(self, rows: pa.Table) -> None:
        batch = f"{_ATTEMPT}{uuid.uuid4().hex}"
        self._stage(rows, batch, {BATCH: batch})

    def forget_attempts(self) -> None:
        made = [s.snapshot_id for s in self.load().every_snapshot() if (s.batch or "").startswith(_ATTEMPT)]
        if made:
            with spark_errors(f"forget attempts on {self._name}", code="expire_failed"):
                expire(self._session, self._spark_name, snapshots=made)

    def dead_positions(self, base: TableState) -> set[int]:
        letters = dead_letters_table(self._lake, self._name)
        return dead_positions(letters, base.stream_identity, at_least=base.watermark)

    def add_dead_letters(self, base: TableState, letters: Sequence[DeadLetter]) -> int:
        return add_dead_letters(self._lake, base if isinstance(base, LakeTable) else self.load(), letters)

    def tidy(self, *, keep_snapshots: int) -> int:
        """Expiry in the committer's own turn: there is no stage of ours in flight that it could take away.

        A snapshot that somebody else staged before the oldest one kept has lost its parent, and so its chance.
        """
        expired = snapshots_over_budget(
            self.load(), budget=keep_snapshots, keep_seconds=self._keep_seconds, now=datetime.now(UTC)
        )
        if not expired:
            return 0
        crash_point("before_expire")
        with spark_errors(f"expire snapshots of {self._name}", code="expire_failed"):
            expire(self._session, self._spark_name, snapshots=expired)
        crash_point("after_expire")
        return len(expired)


IN_MEMORY_BYTES = 8 << 20
"""Larger batches are handed to Spark in files: as tasks of many megabytes they would fill the driver's heap."""
_ROWS_PER_FILE = 250_000
_ROWS_PER_GROUP = 50_000


OPEN_COLUMNS = 400
"""Columns that may be buffered at once in the files of different partitions: each takes about 100 KB of the heap."""


def is_spread(spec: TableSpec, rows: pa.Table) -> bool:
    """Whether the rows fall into more partitions than can have an open file each."""
    partitions = count_partitions(spec.partition, rows)
    return partitions > 1 and partitions * sum(_leaves(field.type) for field in rows.schema) > OPEN_COLUMNS


def _leaves(of_type: pa.DataType) -> int:
    return sum(_leaves(of_type.field(at).type) for at in range(of_type.num_fields)) or 1


def stage(
    session: SparkSession,
    table: str,
    rows: pa.Table,
    *,
    wap_id: str,
    summary: Mapping[str, str],
    clustered: bool = False,
) -> None:
    """Append the rows as a snapshot that nobody sees yet.

    `clustered` writes one partition after the other: each core gets whole partitions, sorts its rows by them, and has
    one file open at a time. Otherwise all files are open until the last row, which is quicker for a few of them.
    """
    session.conf.set("spark.wap.id", wap_id)
    files = min(2, 1 + rows.num_rows // _ROWS_PER_FILE)
    with _frame(session, rows) as frame:
        # Each partition becomes a file, and of a large batch there are many.
        writer = frame.coalesce(files).writeTo(table).option("fanout-enabled", str(not clustered).lower())
        if clustered:
            writer = writer.option("distribution-mode", "hash")
        for key, value in summary.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()


@contextmanager
def _frame(session: SparkSession, rows: pa.Table) -> Iterator[DataFrame]:
    """The rows as Spark sees them: in memory, or in a file of this machine where Spark runs on no other."""
    context = session.sparkContext
    if rows.nbytes <= IN_MEMORY_BYTES or not (context.master or "").startswith("local"):
        yield session.createDataFrame(rows)
        return
    with TemporaryDirectory(prefix="stage-", dir=context._temp_dir) as folder:
        _write(rows, f"{folder}/rows.parquet")
        schema = from_arrow_schema(rows.schema)
        yield session.read.schema(schema).option("datetimeRebaseMode", "CORRECTED").parquet(folder)


def _write(rows: pa.Table, path: str) -> None:
    try:
        # Read once and deleted: compressing it would cost more than it saves.
        write_table(rows, path, compression="none", use_dictionary=False, row_group_size=_ROWS_PER_GROUP)
    except OSError as error:
        raise Unavailable(
            f"cannot hand {rows.nbytes:,} bytes to Spark: {error}",
            code="stage_failed",
            hint="make room on the disk of temporary files (spark.local.dir, TMPDIR)",
        ) from error


def expire(
    session: SparkSession, table: str, *, snapshots: Iterable[int] = (), older_than: datetime | None = None
) -> None:
    """Expire these snapshots, or all older ones, and delete the files that only they needed.

    By Iceberg's own table call instead of the SQL procedure: no Spark job, a few milliseconds beside a commit.
    """
    jvm = session._jvm
    assert jvm is not None
    # In a thread that has done nothing yet, Spark would look for the table without knowing any catalog of ours.
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(session._jsparkSession)
    handle = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)
    # Without a time the table's default would count, which is five days.
    milliseconds = int(older_than.timestamp() * 1000) if older_than else 0
    expiry = handle.expireSnapshots().expireOlderThan(milliseconds).cleanExpiredFiles(True)
    for snapshot_id in snapshots:
        expiry = expiry.expireSnapshotId(snapshot_id)
    expiry.commit()


class CommitLost(Unavailable):
    """Another commit came first; this one has certainly not taken effect."""


@contextmanager
def spark_errors(doing: str, *, code: str) -> Iterator[None]:
    """Translates Spark's errors. The error of a JVM that is gone is left as it is: only a new process helps."""
    try:
        yield
    except Py4JNetworkError:
        raise
    except (Py4JJavaError, PySparkException) as error:
        java = error.java_exception if isinstance(error, Py4JJavaError) else None
        text = str(java.toString() if java is not None else error).strip() or type(error).__name__
        lost = text.startswith("org.apache.iceberg.exceptions.CommitFailedException")
        raise (CommitLost if lost else Unavailable)(
            f"cannot {doing}: {text.splitlines()[0][:300]}",
            code=code,
            hint="it is tried again; if it stays, check the warehouse, the catalog's database and the pipeline's log",
        ) from error


def warm_up(session: SparkSession) -> None:
    """Write and drop a scratch table, so that the classes and code of a commit are loaded before the first one."""
    session.sql("CREATE TABLE IF NOT EXISTS scratch.warm.up (a bigint, b string, c timestamp) USING iceberg")
    rows = pa.table({"a": [1], "b": ["x"], "c": pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC"))})
    for number in range(3):
        stage(session.newSession(), "scratch.warm.up", rows, wap_id=f"warm-{number}", summary={})
    session.sql("DROP TABLE scratch.warm.up PURGE")
