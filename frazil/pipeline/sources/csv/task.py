"""CSV task: some ranges of a file become data files of the table, their bad records files of its quarantine.

Where the types are a guess, the task returns the facts of its data. Once those contradict the guess it writes no more
rows, and only collects facts: all of them are needed to decide the types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.events.declaration import EXTRA, TIMESTAMP
from frazil.lake.bulk import FilePlan, FileWriter, WrittenFile
from frazil.pipeline.sources.csv.dialect import Dialect
from frazil.pipeline.sources.csv.field_text import Text
from frazil.pipeline.sources.csv.parse import LINE, CellRefusal, Parsed, TargetColumn, parse_text, read_fields
from frazil.pipeline.sources.csv.text_ranges import CsvRange
from frazil.pipeline.sources.csv.type_inference import ColumnFacts, facts_of
from frazil.pipeline.sources.csv.type_sample import GuessedColumn

_EXAMPLES = 5
ROW_ID = "_row_id"


@dataclass(frozen=True)
class LoadStamp:
    """What every row of a load has in common."""

    load: str
    position: int | None
    """The `_seq` of its rows; None for a table without system columns."""
    at: datetime
    actor: str | None


@dataclass(frozen=True)
class CsvTask:
    """The work of one task. `extra` are fields of the file that the table keeps as JSON."""

    file: str
    number: int
    """Which file of the load it is."""
    ranges: tuple[CsvRange, ...]
    dialect: Dialect
    width: int
    columns: tuple[TargetColumn, ...]
    extra: tuple[TargetColumn, ...]
    null_words: tuple[str, ...]
    stamp: LoadStamp
    rows_plan: FilePlan
    bad_plan: FilePlan
    supposed: tuple[GuessedColumn, ...] = ()
    refused: Mapping[int, CellRefusal] = field(default_factory=dict)


@dataclass(frozen=True)
class CsvTaskResult:
    number: int
    rows: int
    bad: int
    files: tuple[WrittenFile, ...]
    bad_files: tuple[WrittenFile, ...]
    reasons: Counter[str]
    examples: tuple[dict[str, object], ...]
    file: str
    spooled: tuple[str, ...]
    """Files of rows that wait to be sent as events."""
    facts: Mapping[str, ColumnFacts]
    """Facts of the columns whose type is a guess."""
    contradicted: bool
    """A guess is wrong: nothing was written."""


def load_piece(piece: CsvTask) -> CsvTaskResult:
    """Parse the ranges and write what they hold."""
    tally = _Tally(piece)
    with FileWriter(piece.rows_plan) as good, FileWriter(piece.bad_plan) as quarantine:
        for csv_range in piece.ranges:
            parsed = tally.parsed(csv_range)
            if parsed is None:
                good.abandon()
                quarantine.abandon()
                continue
            good.write(finished(piece, parsed.rows))
            quarantine.write(quarantined(piece, parsed.bad))
    return tally.done(files=tuple(good.written), bad_files=tuple(quarantine.written))


def spool_piece(piece: CsvTask, *, folder: str) -> CsvTaskResult:
    """The same for an entity: its rows are written where the driver reads them. Done again, it writes the same."""
    path = f"{folder}/rows-{piece.number}-{piece.ranges[0].offset}.parquet"
    tally = _Tally(piece)
    with FileWriter(piece.bad_plan) as quarantine, ExitStack() as open_files:
        writer: pq.ParquetWriter | None = None
        for csv_range in piece.ranges:
            parsed = tally.parsed(csv_range)
            if parsed is None:
                quarantine.abandon()
                continue
            ids = row_ids(piece, parsed.rows[LINE])
            named = pa.table({**_columns(piece, parsed.rows), ROW_ID: ids})
            if writer is None:
                writer = open_files.enter_context(pq.ParquetWriter(path, named.schema, compression="zstd"))
            writer.write_table(named)
            quarantine.write(quarantined(piece, parsed.bad))
    return tally.done(bad_files=tuple(quarantine.written), spooled=(path,))


class _Tally:
    """Parses the ranges of a piece, and counts what they hold."""

    def __init__(self, piece: CsvTask) -> None:
        self._piece = piece
        self._rows = self._bad = 0
        self._reasons: Counter[str] = Counter()
        self._examples: list[dict[str, object]] = []
        self._facts = {column.name: ColumnFacts() for column in piece.supposed}
        self._contradicted = False

    def parsed(self, csv_range: CsvRange) -> Parsed | None:
        """Rows and bad records of the next range, or nothing once a guess is known to be wrong."""
        text = _fields(self._piece, csv_range)
        self._contradicted |= not self._bears_out(text)
        return None if self._contradicted else self._counted(_parsed(self._piece, text))

    def _bears_out(self, text: Text) -> bool:
        stands = True
        for column in self._piece.supposed:
            facts = facts_of(text.field(column.position))
            self._facts[column.name] += facts
            stands &= column.stands(facts)
        return stands

    def _counted(self, parsed: Parsed) -> Parsed:
        self._rows += parsed.rows.num_rows
        self._bad += parsed.bad.num_rows
        self._reasons.update(column or "the record" for column in parsed.bad["column"].to_pylist())
        self._examples += parsed.bad.slice(0, _EXAMPLES - len(self._examples)).to_pylist()
        return parsed

    def done(
        self,
        *,
        files: tuple[WrittenFile, ...] = (),
        bad_files: tuple[WrittenFile, ...] = (),
        spooled: tuple[str, ...] = (),
    ) -> CsvTaskResult:
        return CsvTaskResult(
            self._piece.number,
            self._rows,
            self._bad,
            files,
            bad_files,
            self._reasons,
            tuple(self._examples),
            self._piece.file,
            spooled,
            self._facts,
            self._contradicted,
        )


def parsed_range(piece: CsvTask, csv_range: CsvRange) -> Parsed:
    return _parsed(piece, _fields(piece, csv_range))


def _fields(piece: CsvTask, csv_range: CsvRange) -> Text:
    return read_fields(csv_range, piece.dialect, piece.width, (*piece.columns, *piece.extra), piece.null_words)


def _parsed(piece: CsvTask, text: Text) -> Parsed:
    return parse_text(text, (*piece.columns, *piece.extra), refused=piece.refused or None)


def finished(piece: CsvTask, rows: pa.Table) -> pa.Table:
    """The rows with the system's columns, as far as the table has them."""
    count, stamp = rows.num_rows, piece.stamp
    columns = _columns(piece, rows)
    if stamp.position is not None:
        at = pa.repeat(pa.scalar(stamp.at, TIMESTAMP), count)
        columns |= {
            "_seq": pa.repeat(pa.scalar(stamp.position, pa.int64()), count),
            "_id": row_ids(piece, rows[LINE]),
            "_op": pa.repeat(pa.scalar("insert"), count),
            "_ts": at,
            "_received_at": at,
            "_actor": pa.repeat(pa.scalar(stamp.actor, pa.string()), count),
            "_source": pa.repeat(pa.scalar(f"csv:{piece.file}"[:256]), count),
        }
    return pa.table(columns)


def _columns(piece: CsvTask, rows: pa.Table) -> dict[str, pa.Array | pa.ChunkedArray]:
    """The declared columns, and in one what the table keeps besides."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {column.name: rows[column.name] for column in piece.columns}
    return columns | ({EXTRA: _as_json(rows, [column.name for column in piece.extra])} if piece.extra else {})


def row_ids(piece: CsvTask, lines: pa.ChunkedArray) -> pa.ChunkedArray:
    """An id for each row that is the same whenever this load is done again: the load, the file, the line."""
    prefix = f"{piece.stamp.load}:{piece.number}"
    return pc.binary_join_element_wise(prefix, pc.cast(lines, pa.string()), ":")


def quarantined(piece: CsvTask, bad: pa.Table) -> pa.Table:
    """Bad records as rows of the quarantine."""
    count = bad.num_rows
    return pa.table(
        {
            "load": pa.repeat(pa.scalar(piece.stamp.load), count),
            "file": pa.repeat(pa.scalar(piece.file), count),
            "line": bad["line"],
            "column_name": bad["column"],
            "reason": bad["reason"],
            "raw": bad["raw"],
            "loaded_at": pa.repeat(pa.scalar(piece.stamp.at, TIMESTAMP), count),
        }
    )


def _as_json(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """The fields that have a value, as one JSON object; null where none has."""
    texts = []
    for row in rows.select(list(names)).to_pylist():
        given = {name: value for name, value in row.items() if value is not None}
        texts.append(msgspec.json.encode(given).decode() if given else None)
    return pa.array(texts, pa.string())
