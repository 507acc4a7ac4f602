"""Partitions of a batch: which ones its rows fall into, and the values that no store can name a folder by.

The partition of a row becomes folders `column=value` of the table, the value encoded as in a URL. File systems take
names of 255 bytes and object stores keys of 1,024: a longer value would be accepted and could never be written. Every
other value comes back as it was, from the empty text to the years 1 and 9999; a test writes them to both stores.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.errors import InvalidInput
from frazil.events.declaration.table_spec import EXTRA, Partition
from frazil.events.decoding.limits import Limits, Problems

FOLDER_BYTES = 255
"""Longest name of a folder on the file systems that people have."""
PATH_BYTES = 700
"""Longest path of all folders of a partition. Of the 1,024 bytes of a key on S3, the place of the table and the name of
the file take the rest."""
_ENCODED = r"[^A-Za-z0-9_.\- ]"
"""Bytes that one of the two writers, Spark and PyIceberg, writes as three: they disagree about * and ~."""

PartitionKey = tuple[Any, ...]


def count_partitions(partition: Sequence[Partition], rows: pa.RecordBatch | pa.Table) -> int:
    """How many partitions the rows fall into."""
    return len(_different(partition, rows)[0]) if partition else min(1, rows.num_rows)


def _different(partition: Sequence[Partition], rows: pa.RecordBatch | pa.Table) -> list[pa.Array | pa.ChunkedArray]:
    """The different partitions, a column for each field.

    A bucket is some number below the number of buckets, but not the one that Iceberg computes: the number of partitions
    is the same.
    """
    keys = [_key(part, rows.column(part.column)) for part in partition]
    if len(keys) == 1 or rows.num_rows == 1:
        return [key.unique() for key in keys]
    names = [str(at) for at in range(len(keys))]
    grouped = pa.table(keys, names).group_by(names, use_threads=False).aggregate([])
    return [grouped.column(name) for name in names]


def check_partitions(partition: Sequence[Partition], batch: pa.RecordBatch, limits: Limits) -> list[PartitionKey]:
    """The partitions of the events of a request; raises when a value cannot be one, or when there are too many."""
    problems = Problems()
    for part in partition:
        bad = unfit_for_folder(partition, part.column, batch.column(part.column))
        for index in bad.tolist():
            problems.add(index, _field(part.column), too_long(partition))
    problems.raise_if_any(batch.num_rows)
    if not partition:
        return []
    found = _different(partition, batch)
    if len(found[0]) > limits.max_partitions:
        raise InvalidInput(
            f"the events of this request are in {len(found[0]):,} partitions, the limit is {limits.max_partitions:,}",
            code="too_many_partitions",
            hint="nothing was stored: send events of fewer partitions in one request, or declare the table with larger "
            "partitions, such as month(at) instead of day(at), or bucket(16,id) instead of id",
        )
    return list(zip(*(column.to_pylist() for column in found), strict=True))


def unfit_for_folder(partition: Sequence[Partition], column: str, values: pa.Array) -> npt.NDArray[np.int64]:
    """The indices of the values that are too long for the folder of their partition, where the column is one."""
    has_length = pt.is_string(values.type) or pt.is_binary(values.type)
    if not has_length or not any(part.transform == "identity" and part.column == column for part in partition):
        return np.empty(0, np.int64)
    room = _folder_bytes(partition) - len(column) - 1
    most = 3 * (pc.max(pc.binary_length(values)).as_py() or 0)
    if (most if pt.is_string(values.type) else 2 * most) <= room:
        return np.empty(0, np.int64)
    if pt.is_binary(values.type):
        values = pa.array([None if value is None else base64.b64encode(value) for value in values.to_pylist()])
    raw = values.cast(pa.binary())
    sizes = pc.add(pc.binary_length(raw), pc.multiply(2, pc.count_substring_regex(raw, _ENCODED)))
    return np.flatnonzero(np.asarray(pc.fill_null(pc.greater(sizes, room), False)))


def too_long(partition: Sequence[Partition]) -> str:
    return (
        f"is too long for a partition: `column=value`, encoded for a path, has at most {_folder_bytes(partition)} bytes"
    )


def _folder_bytes(partition: Sequence[Partition]) -> int:
    return min(FOLDER_BYTES, PATH_BYTES // len(partition))


def _field(column: str) -> str:
    """The column as producers write it."""
    return column.removeprefix("_") if column.startswith("_") and column != EXTRA else f"data.{column}"


def _key(part: Partition, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if part.transform == "identity":
        return column
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if part.transform == "bucket":
        coded = values.dictionary_encode()
        buckets = [_bucket(value, part.buckets) for value in coded.dictionary.to_pylist()]
        return pa.array(buckets, pa.int32()).take(coded.indices)
    # As a time without a zone: the same in UTC, and a machine without time zones can round it too.
    plain = values.view(pa.timestamp("us")) if pt.is_timestamp(values.type) else values
    return pc.floor_temporal(plain, unit=part.transform)


def _bucket(value: Any, buckets: int) -> int:
    return zlib.crc32(str(value).encode()) % buckets
