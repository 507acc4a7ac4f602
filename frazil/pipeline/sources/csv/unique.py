"""Unique values: repeats across all files of a load, and of values that the table has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import write_table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from frazil.errors import InvalidInput
from frazil.lake.catalog import LakeTable
from frazil.pipeline.jobs.spark_tasks import Tasks
from frazil.pipeline.sources.csv.parse import CellRefusal, TargetColumn, unique_values
from frazil.pipeline.sources.csv.task import CsvTask, parsed_range

MAX_REPEATED = 1_000_000
"""More lines than this are not named one by one: a column with so many is not the one that was meant."""


@dataclass(frozen=True)
class _Listing:
    piece: CsvTask
    number: int
    folder: str


def repeated(tasks: Tasks, pieces: Sequence[CsvTask], spool: Path, *, table: LakeTable | None) -> list[CsvTask]:
    """The pieces, each with the lines that repeat a value: the first one in the load's order stays, if the table has
    none."""
    full = table if table is not None and table.snapshot_id is not None else None
    columns = {column.name: column for piece in pieces for column in piece.columns if column.checks.unique}
    folder = spool / "unique"
    for name in columns:
        (folder / name).mkdir(parents=True, exist_ok=True)
    listings = [_Listing(piece, number, str(folder)) for number, piece in enumerate(pieces)]
    tasks.run(listings, _list_values, doing="look for repeated values")
    refused: defaultdict[int, dict[int, CellRefusal]] = defaultdict(dict)
    for column in columns.values():
        values = tasks.session.read.parquet(str(folder / column.name))
        present = _present(tasks, full, column.name) if full and column.name in full.spec.columns else None
        for row in _repeats(values, present).limit(MAX_REPEATED + 1).toLocalIterator():
            refused[row["piece"]].setdefault(row["line"], CellRefusal(column.name, "the value is there already"))
        if sum(map(len, refused.values())) > MAX_REPEATED:
            raise InvalidInput(
                f"more than {MAX_REPEATED:,} values of {column.name!r} repeat others",
                code="too_many_bad_rows",
                hint="is it the right column to be unique? was the file loaded before in another form?",
            )
    return [replace(piece, refused=refused.get(number, {})) for number, piece in enumerate(pieces)]


def _present(tasks: Tasks, table: LakeTable, column: str) -> DataFrame:
    return tasks.session.table(f"{table.iceberg.catalog.name}.{table.name}").select(F.col(column).alias("value"))


def _repeats(values: DataFrame, present: DataFrame | None) -> DataFrame:
    """The piece and line of each value but the first of its kind."""
    first = values.groupBy("value").agg(F.min(F.struct("piece", "line")).alias("first"), F.count("*").alias("times"))
    repeats = values.join(first.where("times > 1"), on="value", how="inner").where(
        F.struct("piece", "line") > F.col("first")
    )
    parts = [repeats.select("piece", "line")]
    if present is not None:
        parts.append(values.join(present, on="value", how="left_semi").select("piece", "line"))
    return reduce(DataFrame.unionByName, parts).distinct()


def _list_values(listing: _Listing) -> int:
    """Write the values of a piece, with their lines, where the others are. Done again, it writes the same."""
    pieces: dict[str, list[pa.Table]] = {}
    unique: list[TargetColumn] = [column for column in listing.piece.columns if column.checks.unique]
    for csv_range in listing.piece.ranges:
        parsed = parsed_range(replace(listing.piece, columns=tuple(unique), extra=()), csv_range)
        for name, values in unique_values(parsed, unique).items():
            pieces.setdefault(name, []).append(values)
    for name, found in pieces.items():
        values = pa.concat_tables(found)
        number = pa.repeat(pa.scalar(listing.number, pa.int32()), values.num_rows)
        write_table(values.append_column("piece", number), f"{listing.folder}/{name}/{listing.number}.parquet")
    return len(pieces)
