"""Column mapping: fields of the files to columns of the table, with inferred types where none is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frazil.errors import Conflict, InvalidInput
from frazil.events.declaration import (
    NO_CHECKS,
    QUARANTINE_SUFFIX,
    Column,
    ColumnType,
    TableSpec,
    check_declarable,
    parse_column,
    parse_table,
)
from frazil.pipeline.sources.column_names import clean_names, numbered
from frazil.pipeline.sources.csv.parse import TargetColumn
from frazil.pipeline.sources.csv.scan import CsvFile
from frazil.pipeline.sources.csv.type_inference import ColumnFacts, decide

QUARANTINE = {
    "load": "string",
    "file": "string",
    "line": "long",
    "column_name": "string",
    "reason": "string",
    "raw": "string",
    "loaded_at": "timestamp",
}


@dataclass(frozen=True)
class FileColumns:
    """The columns of one file, by their cleaned names, in its order."""

    file: CsvFile
    names: tuple[str, ...]

    def position(self, name: str) -> int | None:
        return self.names.index(name) if name in self.names else None


def shape_of(file: CsvFile) -> FileColumns:
    return FileColumns(file, numbered(file.width) if file.header is None else clean_names(file.header))


def quarantine_of(spec: TableSpec) -> TableSpec:
    """The table where the bad records of a table go."""
    return parse_table(
        {
            "name": f"{spec.name}{QUARANTINE_SUFFIX}",
            "kind": "bulk",
            "columns": QUARANTINE,
            "description": f"Records that could not be loaded into {spec.short_name}.",
            "owner": spec.owner,
        }
    )


def to_infer(shapes: Sequence[FileColumns], declared: Mapping[str, Any], spec: TableSpec | None) -> list[str]:
    """The columns whose type must be read from the data."""
    names = list(dict.fromkeys(name for shape in shapes for name in shape.names))
    unknown = [name for name in names if name not in declared and (spec is None or name not in spec.columns)]
    if spec is None:
        return unknown
    if spec.unknown_fields == "reject" and unknown:
        raise Conflict(
            f"the files have columns that {spec.short_name!r} has not: {', '.join(unknown[:20])}",
            code="schema_drift",
            hint=f"add them first (frazil tables alter {spec.short_name}), or declare the table with "
            'unknown_fields "evolve" or "keep"',
            details={"columns": unknown},
        )
    if spec.unknown_fields == "keep":
        return []
    # Under `evolve` a column may also widen, as far as its type can.
    widening = [name for name in names if name in spec.columns and spec.columns[name].type.kind in _CAN_WIDEN]
    return unknown + widening


_CAN_WIDEN = ("int", "float", "decimal")


def new_spec(
    name: str, shapes: Sequence[FileColumns], declared: Mapping[str, Any], types: Mapping[str, ColumnType]
) -> TableSpec:
    """The table that these files make."""
    names = list(dict.fromkeys(name for shape in shapes for name in shape.names))
    if not names:
        raise InvalidInput("the files have no columns", code="empty_files", hint="a CSV file has at least a header")
    columns = {column: declared.get(column) or str(types[column]) for column in names}
    columns |= {column: given for column, given in declared.items() if column not in columns}
    spec = parse_table({"name": name, "columns": columns, "unknown_fields": "evolve"})
    check_declarable(spec)
    return spec


def columns_to_add(spec: TableSpec, declared: Mapping[str, Any], types: Mapping[str, ColumnType]) -> dict[str, Column]:
    """What an existing table must get for these files: new columns, and wider types where the policy allows it."""
    if spec.unknown_fields != "evolve":
        return {}
    added = {name: parse_column(given, name) for name, given in declared.items() if name not in spec.columns}
    for name, found in types.items():
        if name not in spec.columns:
            added.setdefault(name, Column(found))
            continue
        column = spec.columns[name]
        if (wider_type := wider(column.type, found)) != column.type:
            added[name] = replace(column, type=wider_type)
    return added


def wider(have: ColumnType, found: ColumnType) -> ColumnType:
    """The type that holds both, if `have` can become it; else `have`, and what does not fit is quarantined."""
    if have.kind == "int" and found.kind == "long":
        return found
    if have.kind == "float" and found.kind == "double":
        return found
    if have.kind == "decimal" and found.kind in ("decimal", "long") and found.scale <= have.scale:
        whole = (found.precision - found.scale) if found.kind == "decimal" else 0
        return replace(have, precision=max(have.precision, min(38, whole + have.scale)))
    return have


def targets(shape: FileColumns, spec: TableSpec) -> tuple[tuple[TargetColumn, ...], tuple[TargetColumn, ...]]:
    """Where the fields of a file go: columns of the table, and those that it keeps as JSON."""
    columns = []
    for name, column in spec.columns.items():
        checks = column.checks if not column.required else replace(column.checks, not_null=True)
        partition = spec.partition if any(part.column == name for part in spec.partition) else ()
        columns.append(TargetColumn(name, column.type, shape.position(name), checks, partition))
    extra = [
        TargetColumn(name, ColumnType("string"), position, NO_CHECKS)
        for position, name in enumerate(shape.names)
        if name not in spec.columns
    ]
    return tuple(columns), tuple(extra)


def decided_types(facts: Mapping[str, ColumnFacts]) -> dict[str, ColumnType]:
    return {name: decide(found) for name, found in facts.items()}
