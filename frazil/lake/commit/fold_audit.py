"""Fold audit: a staged state must hold every row it had, each once, except the keys that were changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot

from frazil.events import Keys, id_keys
from frazil.lake.catalog.lake import translated
from frazil.lake.catalog.table import LakeTable, summary_of
from frazil.lake.commit.publish import AuditFailed
from frazil.lake.commit.rewrite_audit import RowSum, changed_files

_BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class FoldAudit:
    """What a fold did, by the files it took away and added."""

    snapshot: Snapshot
    new_keys: int
    changed_keys: int
    late_keys: int
    """Keys whose events were all earlier than what the base had of them."""


def audit_fold(base: LakeTable, staged: LakeTable, batch: str, *, newest: npt.NDArray[np.int64]) -> FoldAudit:
    """Prove the staged fold, given the position of the newest event applied of each key that it should change.

    Of the rows in files that were taken away, those of changed keys must be replaced and all others must be in the
    files added, by position; what else was added must be the newest events, each at most once. Files that the fold left
    alone are not read, and only the changed keys are held in memory.
    """
    snapshot = staged.staged(batch)
    if snapshot is None:
        raise AuditFailed(f"nothing was staged for fold {batch}")
    if snapshot.parent_snapshot_id != base.snapshot_id:
        raise AuditFailed(f"fold {batch} was staged on another snapshot than the one it was read at")
    key = base.spec.key
    with translated(f"audit a fold of {base.name}"):
        added, removed = changed_files(snapshot, staged.iceberg.io)
        changed, unchanged, keys = _added(added, staged.iceberg.io, key, newest)
        replaced, expected = _removed(removed, staged.iceberg.io, key, keys)
    if unchanged != expected:
        raise AuditFailed(
            f"fold {batch} of {base.name} should keep {expected.rows} rows and has {unchanged.rows} or others"
        )
    if len(np.unique(changed)) != len(changed) or len(keys) != len(changed):
        raise AuditFailed(f"fold {batch} of {base.name} has an event or a key twice")
    total = int(summary_of(snapshot).get("total-records") or 0)
    if total != base.rows + len(changed) - replaced:
        raise AuditFailed(f"fold {batch} of {base.name} makes {total} rows of {base.rows}, which does not add up")
    return FoldAudit(snapshot, len(changed) - replaced, replaced, len(newest) - len(changed))


def _added(
    files: Sequence[DataFile], io: FileIO, key: Sequence[str], newest: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], RowSum, Keys]:
    """Of the files added: the positions of changed rows, the sum of the others, and the keys of the changed ones."""
    changed, keys = [np.empty(0, np.int64)], [np.empty((0, 2), np.uint64)]
    unchanged = RowSum()
    for rows in _rows(files, io, key):
        positions = rows.column(0).to_numpy()
        new = np.isin(positions, newest)
        unchanged += RowSum.of(positions[~new])
        changed.append(positions[new])
        keys.append(_keys(rows.filter(pa.array(new)), key))
    return np.concatenate(changed), unchanged, np.unique(np.concatenate(keys), axis=0)


def _removed(files: Sequence[DataFile], io: FileIO, key: Sequence[str], changed: Keys) -> tuple[int, RowSum]:
    """Of the files taken away: how many rows are of changed keys, and the sum of the others."""
    replaced = 0
    expected = RowSum()
    for rows in _rows(files, io, key):
        found = _keys(rows, key)
        of_changed = np.isin(found[:, 0], changed[:, 0]) & np.isin(found[:, 1], changed[:, 1])
        replaced += int(of_changed.sum())
        expected += RowSum.of(rows.column(0).to_numpy()[~of_changed])
    return replaced, expected


def _rows(files: Sequence[DataFile], io: FileIO, key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with io.new_input(file.file_path).open() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS, columns=["_seq", *key]):
                yield batch.select(["_seq", *key])


def _keys(rows: pa.RecordBatch, key: Sequence[str]) -> Keys:
    """A hash of each key, equal for equal values whatever the width of their type."""
    if not rows.num_rows:
        return np.empty((0, 2), np.uint64)
    parts = []
    for name in key:
        texts = pc.cast(rows.column(name), pa.string())
        parts += [pc.cast(pc.binary_length(texts), pa.string()), texts]
    return id_keys(pc.binary_join_element_wise(*parts, ":"))
