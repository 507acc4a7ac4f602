"""Staged and published snapshots without Spark: what the pipeline's stage leaves behind, made by PyIceberg."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID

from frazil.events import first_position
from frazil.lake.catalog import BATCH, PREVIOUS_WATERMARK, WATERMARK, Lake, LakeTable
from frazil.lake.commit import Outcome, audit, make_durable, publish_stage
from frazil.lake.commit.publish import PublishResult

_numbers = itertools.count(1)


def rows(table: LakeTable, values: Sequence[Mapping[str, Any]], *, received_at: datetime | None = None) -> pa.Table:
    """Rows for the next message of the stream."""
    now = received_at or datetime.now(UTC)
    schema = table.spec.row_schema()
    system = {"_op": "insert", "_ts": now, "_received_at": now}
    complete = [
        {**system, "_seq": table.watermark + i, "_id": f"e{table.watermark + i}", **given}
        for i, given in enumerate(values)
    ]
    return pa.table(
        [pa.array([row.get(field.name) for row in complete], field.type) for field in schema], schema=schema
    )


def stage(lake: Lake, base: LakeTable, data: pa.Table, watermark: int) -> Snapshot:
    """A snapshot of these rows on top of `base` that no branch points to, as `spark.wap.id` makes it."""
    batch = f"batch-{next(_numbers)}"
    summary = {
        "wap.id": batch,
        BATCH: batch,
        WATERMARK: str(watermark),
        PREVIOUS_WATERMARK: str(base.watermark),
    }
    iceberg = base.iceberg
    producer = iceberg.transaction().update_snapshot(snapshot_properties=summary).fast_append()
    for file in _dataframe_to_data_files(iceberg.metadata, data, iceberg.io):
        producer.append_data_file(file)
    updates, _ = producer._commit()
    added = [update for update in updates if isinstance(update, AddSnapshotUpdate)]
    try:
        lake.catalog.commit_table(iceberg, (AssertTableUUID(uuid=iceberg.metadata.table_uuid),), tuple(added))
    except ValueError as error:  # PyIceberg's word for a snapshot whose number another one took first
        raise CommitFailedException(str(error)) from error
    return audit(base, lake.table(base.name), batch, rows=data.num_rows)


def commit(
    lake: Lake, base: LakeTable, values: Sequence[Mapping[str, Any]], *, received_at: datetime | None = None
) -> PublishResult:
    """Stage and publish the next message of the stream."""
    watermark = start_of_next(base)
    snapshot = stage(lake, base, rows(base, values, received_at=received_at), watermark)
    make_durable(lake.table(base.name), snapshot)
    return publish_stage(lake, base, snapshot, watermark)


def append(
    lake: Lake, name: str, values: Sequence[Mapping[str, Any]], *, received_at: datetime | None = None
) -> LakeTable:
    published = commit(lake, lake.table(name), values, received_at=received_at)
    assert published.outcome is Outcome.PUBLISHED
    return published.table


def start_of_next(table: LakeTable) -> int:
    return table.watermark + first_position(2) - first_position(1)
