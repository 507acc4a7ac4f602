"""Fold rule: the events of a range become one change per key, as one pure transform.

The events of a key apply in the order of the stream. One whose time is earlier than that of an event before it does not
apply. Each column then has the value of the last event applied that sets it: an upsert and a delete set all of them, a
patch those that it names.

The base is not needed for it. Whatever is too late against the base is so together with all that came before it in the
range, so that the merge decides by the time of the event that set a column (`set_at >= base._ts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from frazil.events.declaration import EXTRA, PATCH

VALUE, SET_AT = "value", "set_at"
_SOURCE = "_changes"


def changes(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """One row a key: the system columns of the newest event applied, and of each other column what it is set to.

    A column is a struct of `value` and `set_at`, the time of the event that set it; null where none did.
    """
    system = [name for name in events.columns if name.startswith("_") and name not in (EXTRA, PATCH)]
    values = [name for name in events.columns if name not in (*system, *key, PATCH)]
    newest = F.max_by(F.struct(*map(_column, system)), F.col("_seq")).alias("_newest")
    resolved = _applied(events, key).groupBy(*map(_column, key)).agg(newest, *map(_last_set, values))
    return resolved.select(*map(_column, key), "_newest.*", *map(_column, values))


def _applied(events: DataFrame, key: Sequence[str]) -> DataFrame:
    before = Window.partitionBy(*map(_column, key)).orderBy("_seq").rowsBetween(Window.unboundedPreceding, -1)
    latest = F.max("_ts").over(before)
    applies = latest.isNull() | (F.col("_ts") >= latest)
    return events.withColumn("_applies", applies).where("_applies").drop("_applies")


def _last_set(name: str) -> Column:
    is_patch = F.col("_op") == "patch"
    sets = ~is_patch | F.array_contains(F.col(PATCH), name)
    value = F.when(F.col("_op") != "delete", _column(name))
    # A row without an ordering is passed over: that leaves the rows that set the column.
    return F.max_by(F.struct(value.alias(VALUE), F.col("_ts").alias(SET_AT)), F.when(sets, F.col("_seq"))).alias(name)


def merge(changes: DataFrame, base: str, columns: Sequence[str], key: Sequence[str]) -> None:
    """Merge what `changes` made into the base, a table with these columns. A deleted key keeps its row."""
    system = [name for name in columns if name.startswith("_") and name != EXTRA]
    values = [name for name in columns if name not in (*system, *key)]
    target = _q(base.rpartition(".")[2])
    matched = reduce(and_, (_column(name, _SOURCE) == _column(name, target) for name in key))
    applies = F.col(f"{_SOURCE}._ts") >= F.col(f"{target}._ts")
    given = {name: _column(name, _SOURCE) for name in system}
    updated = {name: _merged(name, target) for name in values}
    inserted = {name: F.col(f"{_SOURCE}.{_q(name)}.{VALUE}") for name in values}
    keys = {name: _column(name, _SOURCE) for name in key}
    # A statement of SQL would need a view, and Spark 4.1 plans no merge from a view of a table (`No plan for …`).
    (
        changes.alias(_SOURCE)
        .mergeInto(base, matched)
        .whenMatched(applies)
        .update(_quoted(given | updated))
        .whenNotMatched()
        .insert(_quoted(keys | given | inserted))
        .merge()
    )


def _merged(name: str, target: str) -> Column:
    set_at = F.col(f"{_SOURCE}.{_q(name)}.{SET_AT}")
    value = F.col(f"{_SOURCE}.{_q(name)}.{VALUE}")
    return F.when(set_at >= F.col(f"{target}._ts"), value).otherwise(_column(name, target))


def _quoted(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {_q(name): column for name, column in columns.items()}


def _column(name: str, table: str = "") -> Column:
    return F.col(f"{table}.{_q(name)}" if table else _q(name))


def _q(name: str) -> str:
    return f"`{name}`"
