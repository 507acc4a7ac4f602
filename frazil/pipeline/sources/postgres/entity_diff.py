"""Entity diff: rows of a source that are new, changed or gone against an entity, as pure transforms and one job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from frazil.pipeline.commit.target import spark_errors


def changed_and_gone(
    session: SparkSession,
    base: str | None,
    rows: Path,
    out: tuple[Path, Path],
    *,
    key: Sequence[str],
    columns: Sequence[str],
    schema: pa.Schema,
) -> None:
    """Write the rows that are new or changed, and the keys that are gone, each into a folder of Parquet files."""
    everything = from_arrow_schema(schema)
    source = (
        session.read.schema(everything).parquet(str(rows)) if rows.exists() else session.createDataFrame([], everything)
    )
    if base is None:
        current = session.createDataFrame([], everything)
    else:
        current = session.table(base).where("_op <> 'delete'").select(*(_q(name) for name in schema.names))
    with spark_errors("compare the source with the entity", code="bulk_failed"):
        changed(source, current, key, columns).write.parquet(str(out[0]))
        gone(source, current, key).write.parquet(str(out[1]))


def changed(source: DataFrame, current: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """The rows of the source that the current state has not, or has with another value in any column."""
    matched = _matched(key)
    differs: list[Column] = [~F.col(f"s.{_q(name)}").eqNullSafe(F.col(f"c.{_q(name)}")) for name in columns]
    is_new = F.col(f"c.{_q(key[0])}").isNull()
    joined = source.alias("s").join(current.alias("c"), on=matched, how="left")
    return joined.where(reduce(or_, differs, is_new)).select(*(F.col(f"s.{_q(name)}") for name in source.columns))


def gone(source: DataFrame, current: DataFrame, key: Sequence[str]) -> DataFrame:
    """The keys of the current state that the source has not."""
    joined = current.alias("c").join(source.alias("s"), on=_matched(key), how="left_anti")
    return joined.select(*(F.col(f"c.{_q(name)}") for name in key))


def _matched(key: Sequence[str]) -> Column:
    pairs = [F.col(f"s.{_q(name)}") == F.col(f"c.{_q(name)}") for name in key]
    return reduce(lambda one, other: one & other, pairs)


def _q(name: str) -> str:
    return f"`{name}`"
