"""Target columns: the table that a Postgres table is loaded into, and the columns that it needs when that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from frazil.events.declaration import Column, ColumnType, TableSpec, parse_table
from frazil.pipeline.sources.postgres.read import TablePlan

DATE_COLUMN = "dt"


@dataclass(frozen=True)
class Fitted:
    """Where each column of the source goes, and what the table must get for it."""

    names: Mapping[str, str]
    added: Mapping[str, Column]


def archive_spec(
    name: str, plan: TablePlan, *, description: str, retention_years: float | None, names: Mapping[str, str]
) -> TableSpec:
    """The archive of a table: its columns and the date of the night, a partition for each night, nothing expired."""
    columns = {DATE_COLUMN: Column(ColumnType("date"), description="The night of the archive.")}
    columns |= {names[column.target]: _column(column.declared, column.type) for column in plan.columns}
    declared = {
        "name": name,
        "kind": "bulk",
        "columns": {column: words.declared() for column, words in columns.items()},
        "partition": [DATE_COLUMN],
        "unknown_fields": "evolve",
        "keep_snapshots": "all",
        "retention_years": retention_years,
        "description": description,
        "tags": ["archive"],
    }
    return parse_table(declared)


def fit_columns(plan: TablePlan, existing: Mapping[str, Column], *, reserved: Sequence[str] = (DATE_COLUMN,)) -> Fitted:
    """Each column goes to the one of its name, if its type is that one's, or either can become the other.

    A column that was given another type goes to one named after the type as well, `amount_string` beside `amount`: the
    nights before keep theirs. Columns that are no longer there stay, empty from now on.
    """
    names: dict[str, str] = {}
    added: dict[str, Column] = {}
    for column in plan.columns:
        wanted = f"{column.target}_" if column.target in reserved else column.target
        for candidate in _candidates(wanted, column.type):
            have = existing.get(candidate)
            if candidate in names.values():
                continue
            if have is None:
                added[candidate] = _column(column.declared, column.type)
            elif have.type.widens_to(column.type) and have.type != column.type:
                added[candidate] = replace(have, type=column.type)
            elif not column.type.widens_to(have.type):
                continue
            names[column.target] = candidate
            break
    return Fitted(names, added)


def _candidates(name: str, of_type: ColumnType) -> list[str]:
    suffix = of_type.kind if of_type.kind != "decimal" else f"decimal_{of_type.precision}_{of_type.scale}"
    other = f"{name[: 62 - len(suffix)]}_{suffix}"
    return [name, other, *(f"{other[:60]}_{number}" for number in range(2, 10))]


def _column(declared: str, of_type: ColumnType) -> Column:
    return Column(of_type, description=f"{declared} in Postgres")
