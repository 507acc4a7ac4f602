"""Table spec: the declaration of a table, with its names, types, partitions and policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from frazil.errors import Conflict, InvalidInput
from frazil.events.declaration.column_checks import NO_CHECKS, Checks, parse_checks
from frazil.events.declaration.column_types import NAME, TIMESTAMP, ColumnType, parse_type
from frazil.events.declaration.search_spec import SearchSpec, check_search, parse_search

DEFAULT_NAMESPACE = "main"
DROPPED_NAMESPACE = "dropped"
SYSTEM_NAMESPACE = "system"
"""The namespace of frazil's own tables; users cannot declare one."""
MAX_COLUMNS = 1000
MAX_NAME = 63
UnknownFields = Literal["evolve", "keep", "reject"]
Snapshots = Literal["budget", "all"]

EXTRA = "_extra"
PATCH = "_patch"
"""In a history: the fields that a patch gave; null for every other event."""
HISTORY_SUFFIX = "__history"
QUARANTINE_SUFFIX = "__quarantine"
EMBEDDINGS_SUFFIX = "__embeddings"
TRIALS_SUFFIX = "__trials"
DEAD_LETTERS_SUFFIX = "__dead_letters"
RESERVED_SUFFIXES = (HISTORY_SUFFIX, QUARANTINE_SUFFIX, EMBEDDINGS_SUFFIX, TRIALS_SUFFIX, DEAD_LETTERS_SUFFIX)
_KINDS = ("log", "entity", "history", "bulk")
_KEY_KINDS = ("string", "bool", "int", "long", "decimal", "date", "timestamp")
SYSTEM_COLUMNS: tuple[pa.Field, ...] = (
    pa.field("_seq", pa.int64(), nullable=False),
    pa.field("_id", pa.string(), nullable=False),
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_ts", TIMESTAMP, nullable=False),
    pa.field("_received_at", TIMESTAMP, nullable=False),
    pa.field("_actor", pa.string()),
    pa.field("_source", pa.string()),
    pa.field("_workspace", pa.string()),
)
_PARTITION = re.compile(
    r"(?:identity\()?(?P<plain>_?[a-z][a-z0-9_]*)\)?\Z"
    r"|(?P<time>day|hour|month)\(\s*(?P<time_column>_?[a-z][a-z0-9_]*)\s*\)\Z"
    r"|bucket\(\s*(?P<buckets>\d{1,5})\s*,\s*(?P<bucket_column>_?[a-z][a-z0-9_]*)\s*\)\Z"
)


@dataclass(frozen=True)
class Column:
    type: ColumnType
    required: bool = False
    description: str = ""
    sensitivity: str = ""
    checks: Checks = NO_CHECKS
    """Rules that bulk loads check its values by."""

    def declared(self) -> str | dict[str, Any]:
        """The shortest form that declares this column."""
        if not (self.required or self.description or self.sensitivity or self.checks):
            return str(self.type)
        words: dict[str, Any] = {
            "required": self.required,
            "description": self.description,
            "sensitivity": self.sensitivity,
            "checks": self.checks.declared(),
        }
        return {"type": str(self.type)} | {name: value for name, value in words.items() if value}


@dataclass(frozen=True)
class Partition:
    """One partition field: the transform (identity, day, hour, month, bucket) of a column."""

    transform: str
    column: str
    buckets: int = 0

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        if self.transform == "bucket":
            return f"bucket({self.buckets},{self.column})"
        return f"{self.transform}({self.column})"


@dataclass(frozen=True)
class TableSpec:
    """The declaration of a table. Stored with the table, so that any process can read it back."""

    name: str
    columns: Mapping[str, Column]
    kind: str = "log"
    key: tuple[str, ...] = ()
    partition: tuple[Partition, ...] = ()
    unknown_fields: UnknownFields = "reject"
    description: str = ""
    owner: str = ""
    tags: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    search: SearchSpec | None = None
    """The declared search; `searched` has the defaults too."""
    freshness_target_seconds: float | None = None
    retention_years: float | None = None
    """Rows of older partitions may be removed, by a plan that an operator has confirmed; None keeps them forever."""
    keep_snapshots: Snapshots = "budget"
    """Whether routine expiry keeps a budget of snapshots, or all of them."""

    @property
    def is_streamed(self) -> bool:
        """Whether events can be published to it. Rows of the other tables come by bulk loads alone."""
        return self.kind != "bulk"

    @property
    def searched(self) -> SearchSpec | None:
        """How the table is searched: as declared, or by default where it names text; None where there is nothing."""
        return self.search or (SearchSpec() if self.text else None)

    @property
    def namespace(self) -> str:
        return self.name.partition(".")[0]

    @property
    def short_name(self) -> str:
        """The name as users write it: without the default namespace."""
        return self.name.removeprefix(f"{DEFAULT_NAMESPACE}.")

    def history(self) -> TableSpec:
        """The log that the events of this entity go to. It has no partitions: each commit would write to all."""
        return replace(self, name=history_of(self.name), kind="history", partition=())

    def row_schema(self) -> pa.Schema:
        """The columns of a committed row: the system's, then the declared, then `_extra` where unknowns are kept."""
        return self._row_schema

    def wire_schema(self) -> pa.Schema:
        """The columns of an event on the bus: a row without `_seq`, which the bus itself decides."""
        return self._wire_schema

    @cached_property
    def _row_schema(self) -> pa.Schema:
        fields = list(SYSTEM_COLUMNS) if self.is_streamed else []
        fields += [pa.field(name, column.type.arrow) for name, column in self.columns.items()]
        if self.unknown_fields == "keep":
            fields.append(pa.field(EXTRA, pa.string()))
        if self.kind == "history":
            fields.append(pa.field(PATCH, pa.list_(pa.field("element", pa.string()))))
        return pa.schema(fields)

    @cached_property
    def _wire_schema(self) -> pa.Schema:
        return pa.schema(list(self._row_schema)[1:])

    def declared(self) -> dict[str, Any]:
        """The declaration as JSON; `parse_table` of it gives this table again."""
        return {
            "name": self.short_name,
            "kind": self.kind,
            "columns": {name: column.declared() for name, column in self.columns.items()},
            "key": list(self.key),
            "partition": [str(part) for part in self.partition],
            "unknown_fields": self.unknown_fields,
            "description": self.description,
            "owner": self.owner,
            "tags": list(self.tags),
            "text": list(self.text),
            "search": self.search.declared() if self.search else None,
            "freshness_target_seconds": self.freshness_target_seconds,
            "retention_years": self.retention_years,
            "keep_snapshots": self.keep_snapshots,
        }

    def with_columns(self, added: Mapping[str, Column]) -> TableSpec:
        """This table with new columns, or with a type widened; anything else is a `Conflict`."""
        columns = dict(self.columns)
        for name, column in added.items():
            _check_column_name(name)
            old = columns.get(name)
            if old is not None and not old.type.widens_to(column.type):
                raise Conflict(
                    f"column {name!r} is {old.type} and cannot become {column.type}",
                    code="cannot_widen",
                    hint="use int to long, float to double, or decimal to a higher precision of the same scale",
                )
            if old is None and column.required:
                raise Conflict(
                    f"the new column {name!r} cannot be required: existing rows have no value",
                    code="new_column_required",
                    hint="add the column without `required`",
                )
            columns[name] = column
        _check_column_count(columns)
        return replace(self, columns=columns)


def table_name(text: str) -> str:
    """The full name `namespace.name` of what a user wrote, or `InvalidInput`."""
    namespace, dot, name = text.partition(".")
    full = (namespace, name) if dot else (DEFAULT_NAMESPACE, namespace)
    if not all(NAME.match(part) for part in full) or full[0] == DROPPED_NAMESPACE:
        raise InvalidInput(
            f"{text[:80]!r} is not a table name",
            code="bad_table_name",
            hint="use a-z, 0-9 and _, beginning with a letter, at most 63 characters: `name` or `namespace.name`",
        )
    return ".".join(full)


def check_declarable(spec: TableSpec) -> None:
    """Refuse the names that frazil gives to tables of its own, and columns that cannot be searched as declared.

    The latter not when a declaration is read back: tables made before search was have `text` of any type.
    """
    check_search(spec.search, spec.text, {name: column.type for name, column in spec.columns.items()})
    if spec.searched is not None and not NAME.match(refused_embeddings_of(spec.name).partition(".")[2]):
        longest = MAX_NAME - len(EMBEDDINGS_SUFFIX + QUARANTINE_SUFFIX)
        raise InvalidInput(
            f"the table name is too long: a table with search can have at most {longest} characters",
            code="bad_table_name",
            hint="choose a shorter name, or remove `text` and `search`; tables with vectors get a suffix",
        )
    if spec.is_streamed and not NAME.match(dead_letters_of(spec.name).partition(".")[2]):
        raise InvalidInput(
            f"the table name is too long: the limit is {MAX_NAME - len(DEAD_LETTERS_SUFFIX)} characters",
            code="bad_table_name",
            hint=f"choose a shorter name; the table of dead letters gets the suffix {DEAD_LETTERS_SUFFIX!r}",
        )
    if spec.namespace == SYSTEM_NAMESPACE:
        raise InvalidInput(
            f"the namespace {SYSTEM_NAMESPACE!r} is reserved",
            code="reserved_namespace",
            hint="choose another namespace",
        )
    if spec.name.endswith(RESERVED_SUFFIXES) or spec.kind == "history":
        raise InvalidInput(
            f"the table name {spec.short_name!r} is reserved",
            code="reserved_name",
            hint=f"choose a name that does not end with {' or '.join(RESERVED_SUFFIXES)}",
        )


def parse_column(declared: str | Mapping[str, Any], name: str) -> Column:
    """A column from its type alone, or from `{type, required?, description?, sensitivity?, checks?}`."""
    if isinstance(declared, str):
        return Column(parse_type(declared))
    of_type = parse_type(declared["type"])
    checks = declared.get("checks")
    return Column(
        of_type,
        required=declared.get("required", False),
        description=declared.get("description") or "",
        sensitivity=declared.get("sensitivity") or "",
        checks=NO_CHECKS if checks is None else parse_checks(checks, name, of_type),
    )


def parse_columns(declared: Mapping[str, Any]) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for name, column in declared.items():
        _check_column_name(name)
        columns[name] = parse_column(column, name)
    _check_column_count(columns)
    return columns


def parse_table(declared: Mapping[str, Any]) -> TableSpec:
    """A table from its declaration, by the rules about names, types, keys and partitions.

    The values have the types of `frazil.requests.CreateTableRequest`, which checks the declarations of callers; those
    in the catalog come from `TableSpec.declared`. A field of a later version is refused, not left out.
    """
    if unknown := sorted(declared.keys() - {field.name for field in fields(TableSpec)}):
        raise InvalidInput(f"the table declaration has the unknown field {unknown[0][:80]!r}", code="unknown_field")
    kind = declared.get("kind") or "log"
    if kind not in _KINDS:  # of a later version, in the catalog
        raise InvalidInput(
            f"table kind {kind[:40]!r} is not supported", code="unsupported_kind", hint="use log, entity or bulk"
        )
    columns = parse_columns(declared["columns"])
    name = table_name(declared["name"])
    if kind in ("entity", "history"):
        columns = _keyed(name, kind, columns, _texts(declared, "key"))
    return TableSpec(
        name=name,
        kind=kind,
        columns=columns,
        key=_column_list(declared, "key", columns),
        partition=tuple(_parse_partition(part, columns) for part in _texts(declared, "partition")),
        unknown_fields=declared.get("unknown_fields") or "reject",
        description=declared.get("description") or "",
        owner=declared.get("owner") or "",
        tags=_texts(declared, "tags"),
        text=_column_list(declared, "text", columns),
        search=parse_search(declared.get("search")),
        freshness_target_seconds=_number(declared, "freshness_target_seconds"),
        retention_years=_number(declared, "retention_years"),
        keep_snapshots=declared.get("keep_snapshots") or "budget",
    )


def history_of(name: str) -> str:
    """The table that holds the events of this entity."""
    return name + HISTORY_SUFFIX


def entity_of(name: str) -> str:
    """The entity whose events this table holds; any other table is its own."""
    return name.removesuffix(HISTORY_SUFFIX)


def embeddings_of(name: str) -> str:
    """The table that holds the vectors of this one."""
    return name + EMBEDDINGS_SUFFIX


def refused_embeddings_of(name: str) -> str:
    """The table that holds the chunks of this one that have no vector, and why."""
    return name + EMBEDDINGS_SUFFIX + QUARANTINE_SUFFIX


def trials_of(name: str) -> str:
    """The table that holds what was measured on the vectors of this one."""
    return name + TRIALS_SUFFIX


def dead_letters_of(name: str) -> str:
    """The table that holds the events of this one that could not be committed; those of a history are its entity's."""
    return entity_of(name) + DEAD_LETTERS_SUFFIX


def embedded_of(name: str) -> str | None:
    """The table that these embeddings (or their quarantine), trials or dead letters belong to; None for any other."""
    for suffix in (TRIALS_SUFFIX, DEAD_LETTERS_SUFFIX):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    vectors = name.removesuffix(QUARANTINE_SUFFIX)
    return vectors.removesuffix(EMBEDDINGS_SUFFIX) if vectors.endswith(EMBEDDINGS_SUFFIX) else None


def _keyed(name: str, kind: str, columns: dict[str, Column], key: tuple[str, ...]) -> dict[str, Column]:
    """The columns of an entity: those of its key are required, and of kinds whose values are equal or not."""
    if not key:
        raise InvalidInput(
            "an entity needs a key",
            code="bad_key",
            hint='name the key columns, for example "key": ["id"], or declare a log',
        )
    if len(set(key)) != len(key):
        raise InvalidInput("the key names a column twice", code="bad_key", hint="name each column only once")
    if kind == "entity" and not NAME.match(history_of(name).partition(".")[2]):
        raise InvalidInput(
            "the table name is too long: an entity can have at most 54 characters",
            code="bad_table_name",
            hint=f"choose a shorter name; the history gets the suffix {HISTORY_SUFFIX!r}",
        )
    for column in key:
        if column in columns and columns[column].type.kind not in _KEY_KINDS:
            raise InvalidInput(
                f"column {column!r} of type {columns[column].type.kind} cannot be part of a key",
                code="bad_key",
                hint="use a column of type " + ", ".join(_KEY_KINDS),
            )
    return {name: replace(column, required=True) if name in key else column for name, column in columns.items()}


def _parse_partition(text: str, columns: Mapping[str, Column]) -> Partition:
    match = _PARTITION.match(text.strip())
    if not match:
        raise InvalidInput(
            f"{text[:80]!r} is not a valid partition",
            code="bad_partition",
            hint="use `column`, `day(column)`, `hour(column)`, `month(column)` or `bucket(16,column)`",
        )
    column = match["plain"] or match["time_column"] or match["bucket_column"]
    kinds = {name: declared.type.kind for name, declared in columns.items()}
    kinds |= {"_id": "string", "_ts": "timestamp", "_received_at": "timestamp", "_workspace": "string"}
    kinds |= {"_source": "string", "_actor": "string"}
    kind = kinds.get(column)
    if kind is None:
        raise InvalidInput(
            f"the partition column {column!r} is not declared",
            code="bad_partition",
            hint="declare the column, or remove the partition",
        )
    if match["time"]:
        if kind not in ("timestamp", "date") or (kind == "date" and match["time"] == "hour"):
            raise InvalidInput(
                f"{match['time']}() needs a timestamp column, but {column!r} is {kind}",
                code="bad_partition",
                hint="use a timestamp column, or a date column with day() or month()",
            )
        return Partition(match["time"], column)
    if kind in ("list", "struct", "map", "json", "float", "double") or (match["buckets"] and kind == "bool"):
        raise InvalidInput(
            f"column {column!r} of type {kind} cannot be a partition",
            code="bad_partition",
            hint="use another column for the partition",
        )
    if match["buckets"]:
        if int(match["buckets"]) < 1:
            raise InvalidInput(
                "bucket() needs at least one bucket", code="bad_partition", hint="for example bucket(16,id)"
            )
        return Partition("bucket", column, int(match["buckets"]))
    return Partition("identity", column)


def _check_column_name(name: str) -> None:
    if not NAME.match(name):
        raise InvalidInput(
            f"{str(name)[:80]!r} is not a column name",
            code="bad_column_name",
            hint="use a-z, 0-9 and _, beginning with a letter, at most 63 characters",
        )


def _check_column_count(columns: Mapping[str, Column]) -> None:
    if sum(column.type.leaves() for column in columns.values()) > MAX_COLUMNS:
        raise InvalidInput(
            f"the table has too many columns: the limit is {MAX_COLUMNS}, nested columns included",
            code="too_many_columns",
            hint="put rarely used fields into one json column",
        )


def _number(declared: Mapping[str, Any], name: str) -> float | None:
    value = declared.get(name)
    return None if value is None else float(value)


def _texts(declared: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = declared.get(name) or ()
    return (value,) if isinstance(value, str) else tuple(value)


def _column_list(declared: Mapping[str, Any], name: str, columns: Mapping[str, Column]) -> tuple[str, ...]:
    names = _texts(declared, name)
    for column in names:
        if column not in columns:
            raise InvalidInput(f"`{name}` names {column!r}, which is not a column", code="bad_declaration")
    return names
