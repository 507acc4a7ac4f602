"""Stored vectors of the chunks of a build, found by name: kept from an earlier build, or in files of the table.

Only names are in memory, 16 bytes each. A vector is read when all chunks are known, file by file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.embedding import Floats, Ints, SortedKeys, as_matrix, keys_of_chunks
from frazil.events import Keys
from frazil.lake.bulk import FileRange, read_groups, read_range
from frazil.serving.builds.kept_vectors import KeptVectors
from frazil.serving.builds.plan import BuildPlan, Files

_NAMES = pa.schema([("document", pa.string()), ("chunk", pa.int32()), ("hash", pa.string()), ("version", pa.string())])
_BLOCK = 8_192


@dataclass(frozen=True)
class VectorCounts:
    """Where the vectors of a build came from."""

    kept: int
    read: int
    files: int
    """Of the table of vectors, of which vectors were read."""


@dataclass(frozen=True)
class _File:
    files: Files
    range: FileRange
    keys: Keys
    rows: Ints
    """Their rows in the file."""


class StoredVectors:
    def __init__(self, plan: BuildPlan) -> None:
        self._plan = plan
        self._kept = None if plan.kept is None else KeptVectors.opened(plan.kept)
        self._files: list[_File] = []
        self._starts = [self._kept_rows]
        """The home of a vector is its place among the kept ones, then among the rows of the files looked at."""
        self._levels: list[tuple[SortedKeys, int]] = []
        if self._kept is not None:
            self._levels.append((SortedKeys(self._kept.keys()), 0))
            self._look_into(plan.vectors)
            self._unread = plan.older
        else:
            both = Files(plan.vectors.plan, (*plan.older.ranges, *plan.vectors.ranges))
            self._look_into(both)
            self._unread = Files(plan.vectors.plan, ())
        self._refused = SortedKeys(_joined([file.keys for file in _read(plan.refused, plan.model.version)]))

    def find(self, keys: Keys) -> tuple[Ints, Ints]:
        """The homes of these chunks' vectors, -1 where there is none; and which of those are known to get none."""
        homes = self._homes(keys, self._levels)
        missing = np.flatnonzero(homes < 0)
        refused = missing[self._refused.find(keys[missing]) >= 0]
        lost = np.setdiff1d(missing, refused, assume_unique=True)
        if len(lost) and self._unread.ranges:
            # A chunk whose text is one from before the kept ones.
            self._look_into(self._unread)
            self._unread = Files(self._unread.plan, ())
            homes[lost] = self._homes(keys[lost], self._levels[-1:])
        return homes, refused

    def fill(self, homes: Ints, vectors: Floats) -> VectorCounts:
        """Put the vector of each home into its row. Of files only what is wanted is read, one row group at a time."""
        kept = np.flatnonzero(homes < self._kept_rows)
        for at in range(0, len(kept), _BLOCK):
            block = kept[at : at + _BLOCK]
            assert self._kept is not None
            vectors[block] = self._kept.vectors[homes[block]]
        files = 0
        for number, file in enumerate(self._files):
            first, stop = self._starts[number : number + 2]
            wanted = np.flatnonzero((homes >= first) & (homes < stop))
            if not len(wanted):
                continue
            files += 1
            self._fill_from(file, wanted, file.rows[homes[wanted] - first], vectors)
        return VectorCounts(len(kept), len(homes) - len(kept), files)

    def _fill_from(self, file: _File, wanted: Ints, of_file: Ints, vectors: Floats) -> None:
        """Several chunks may want the same row of the file."""
        order = np.argsort(of_file, kind="stable")
        rows, first_uses = np.unique(of_file[order], return_index=True)
        uses = np.append(first_uses, len(order))
        at = 0
        for found in read_groups(file.files.plan, file.range.path, rows, "vector"):
            stop = at + len(found)
            here = order[uses[at] : uses[stop]]
            matrix = as_matrix(found, self._plan.model.dims)
            times = np.diff(uses[at : stop + 1])
            vectors[wanted[here]] = matrix if len(here) == len(times) else np.repeat(matrix, times, axis=0)
            at = stop

    @property
    def _kept_rows(self) -> int:
        return 0 if self._kept is None else len(self._kept.vectors)

    def _homes(self, keys: Keys, levels: Sequence[tuple[SortedKeys, int]]) -> Ints:
        homes = np.full(len(keys), -1, np.int64)
        for known, first in levels:
            left = np.flatnonzero(homes < 0)
            at = known.find(keys[left])
            homes[left[at >= 0]] = first + at[at >= 0]
        return homes

    def _look_into(self, files: Files) -> None:
        first = self._starts[-1]
        found = list(_read(files, self._plan.model.version))
        for file in found:
            self._starts.append(self._starts[-1] + len(file.rows))
        self._files += found
        self._levels.append((SortedKeys(_joined([file.keys for file in found])), first))


def _read(files: Files, version: str) -> Iterator[_File]:
    for part in files.ranges:
        keys, rows = [], [np.empty(0, np.int64)]
        at = 0
        for names in read_range(files.plan, part, _NAMES):
            is_wanted = pc.equal(names["version"], version)
            wanted = names.filter(is_wanted).combine_chunks()
            if wanted.num_rows:
                document, chunk, content = (wanted[name].combine_chunks() for name in ("document", "chunk", "hash"))
                keys.append(keys_of_chunks(*map(_array, (document, chunk, content))))
                rows.append(at + np.flatnonzero(is_wanted.to_numpy()))
            at += names.num_rows
        yield _File(files, part, _joined(keys), np.concatenate(rows))


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _joined(keys: Sequence[Keys]) -> Keys:
    return np.concatenate([np.empty((0, 2), np.uint64), *keys])
