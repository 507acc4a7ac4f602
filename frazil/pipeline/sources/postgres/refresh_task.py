"""Refresh task: a range of a table becomes data files of a log, or rows that wait to be sent as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.errors import InvalidInput
from frazil.events.declaration import TIMESTAMP
from frazil.lake.bulk import FilePlan, FileWriter, WrittenFile
from frazil.pipeline.sources.postgres.read import RangeRead

ROW_ID = "_row_id"


@dataclass(frozen=True)
class RowStamp:
    """What every row of the load has in common, and which columns name a row."""

    source: str
    load: str
    position: int
    at: datetime
    actor: str | None
    key: tuple[str, ...]
    cursor: str


@dataclass(frozen=True)
class RowPiece:
    reads: RangeRead
    number: int
    names: Mapping[str, str]
    stamp: RowStamp
    files: FilePlan | None
    folder: str
    known: pa.Array | None
    """Ids that the table has already."""


@dataclass(frozen=True)
class RowsDone:
    rows: int
    repeated: int
    files: tuple[WrittenFile, ...] = ()


def load_rows(piece: RowPiece) -> RowsDone:
    """Write the rows of the range as files of the log."""
    assert piece.files is not None
    rows = repeated = 0
    with FileWriter(piece.files) as writer:
        for read in _read(piece):
            fresh = read
            if piece.known is not None:
                fresh = read.filter(pc.invert(pc.is_in(read[ROW_ID], value_set=piece.known)))
            rows += fresh.num_rows
            repeated += read.num_rows - fresh.num_rows
            writer.write(_with_system_columns(piece.stamp, fresh))
    return RowsDone(rows, repeated, tuple(writer.written))


def spool_rows(piece: RowPiece) -> RowsDone:
    """Write the rows of the range where the driver reads them. Done again, it writes the same."""
    rows = 0
    folder = Path(piece.folder) / "rows"
    folder.mkdir(exist_ok=True)
    writer: pq.ParquetWriter | None = None
    try:
        for read in _read(piece):
            writer = writer or pq.ParquetWriter(folder / f"{piece.number}.parquet", read.schema, compression="zstd")
            writer.write_table(read)
            rows += read.num_rows
    finally:
        if writer is not None:
            writer.close()
    return RowsDone(rows, 0)


def _read(piece: RowPiece) -> Iterator[pa.Table]:
    """The rows in the columns of the target, each with its id."""
    counted = 0
    for batch in piece.reads.batches():
        rows = pa.Table.from_batches([batch])
        rows = rows.rename_columns([piece.names[name] for name in rows.column_names])
        yield rows.append_column(ROW_ID, _ids(piece, rows, counted))
        counted += rows.num_rows


def _ids(piece: RowPiece, rows: pa.Table, counted: int) -> pa.Array:
    stamp = piece.stamp
    if not stamp.key:
        numbers = pa.array(range(counted, counted + rows.num_rows), pa.int64())
        return pc.binary_join_element_wise(f"{stamp.load}:{piece.number}", pc.cast(numbers, pa.string()), ":")
    if not stamp.cursor:
        return row_ids(rows, stamp.load, stamp.key)
    return row_ids(rows, stamp.source, (*stamp.key, stamp.cursor), nullable=(stamp.cursor,))


def row_ids(rows: pa.Table, prefix: str, columns: Sequence[str], *, nullable: Sequence[str] = ()) -> pa.Array:
    """Ids made of these columns. A slash in a value is doubled, so that two keys never look alike."""
    texts = []
    for name in columns:
        column = rows[name].combine_chunks()
        if column.null_count and name not in nullable:
            raise InvalidInput(
                f"{column.null_count} rows have no {name!r}, which is their key",
                code="key_null",
                hint="choose another key, or correct the rows",
            )
        text = pc.replace_substring(pc.cast(column, pa.string()), "/", "//")
        texts.append(pc.fill_null(text, "/null"))
    return pc.binary_join_element_wise(prefix, *texts, "/")


def _with_system_columns(stamp: RowStamp, rows: pa.Table) -> pa.Table:
    count = rows.num_rows
    at = pa.repeat(pa.scalar(stamp.at, TIMESTAMP), count)
    columns = {name: rows[name] for name in rows.column_names if name != ROW_ID}
    return pa.table(
        {
            **columns,
            "_seq": pa.repeat(pa.scalar(stamp.position, pa.int64()), count),
            "_id": rows[ROW_ID],
            "_op": pa.repeat(pa.scalar("insert"), count),
            "_ts": at,
            "_received_at": at,
            "_actor": pa.repeat(pa.scalar(stamp.actor, pa.string()), count),
            "_source": pa.repeat(pa.scalar(stamp.source[:256]), count),
        }
    )
