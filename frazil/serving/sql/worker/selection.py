"""Row selection: the rows that meet a condition, and what a caller may see of them, for searches.

Conditions are untrusted text, so they are judged and evaluated behind the walls, as a row filter of a grant is: one
boolean expression over the columns of one row. They see what the caller's SQL would see: no row that the grant hides,
and masked columns masked. The rows are those of an artifact, in its DuckDB file, or few that come with the request.
"""

# ruff: noqa: S608 (names are quote_name here, everything else was judged before)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.errors import InvalidInput
from frazil.events.declaration import quote_name
from frazil.serving.sql.worker.views import SaltOf, restricted, sql_type, text, visible_type

if TYPE_CHECKING:
    import duckdb

DOCUMENT = "_document"


@dataclass(frozen=True)
class RowSelection:
    """What a caller may see of a table, and under which conditions."""

    columns: pa.Schema
    where: str | None = None
    """The filter of the caller's grant, judged when it was given."""
    masks: Mapping[str, str] = field(default_factory=dict)
    hash_domains: Mapping[str, str] = field(default_factory=dict)
    """For each column that is masked by hash, what its salt is made from."""
    conditions: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for selections that choose the same of the same rows."""
        masks = tuple((name, mask, self.hash_domains.get(name)) for name, mask in sorted(self.masks.items()))
        return self.where, masks, self.conditions, tuple(self.columns.names)

    def as_json(self, salt_of: SaltOf) -> dict[str, Any]:
        return {
            "columns": [(column.name, sql_type(column.type)) for column in self.columns],
            "where": self.where,
            "masks": dict(self.masks),
            "salts": {column: salt_of(domain) for column, domain in self.hash_domains.items()},
            "conditions": list(self.conditions),
        }


@dataclass(frozen=True)
class DecodedSelection:
    """A selection as the worker receives it."""

    columns: Sequence[tuple[str, str]]
    where: str | None
    masks: Mapping[str, str]
    salts: Mapping[str, str]
    conditions: Sequence[str]

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> DecodedSelection:
        columns = [(str(name), str(kind)) for name, kind in fields["columns"]]
        return cls(columns, fields["where"], fields["masks"], fields["salts"], fields["conditions"])

    @property
    def visible(self) -> list[tuple[str, str]]:
        return [(name, visible_type(kind, self.masks.get(name))) for name, kind in self.columns]

    @property
    def restricts(self) -> bool:
        return self.where is not None or bool(self.masks)

    def of(self, source: str, present: Sequence[str], number: str) -> str:
        """The visible rows of a source, each with its number under a name that no condition can guess."""
        there = set(present)
        listed = ", ".join(
            f"CAST({quote_name(name) if name in there else 'NULL'} AS {kind}) AS {quote_name(name)}"
            for name, kind in self.columns
        )
        rows = f"SELECT {listed}, {DOCUMENT} AS {number} FROM {source}"
        return restricted(rows, self.columns, self.where, self.masks, self.salts, also=(number,))

    def numbers(self, source: str, present: Sequence[str], number: str) -> str:
        """The numbers of the rows that meet the conditions, each of which stands on lines of its own."""
        met = " AND ".join(f"(\n{condition}\n)" for condition in self.conditions) or "true"
        return f"SELECT {number} FROM ({self.of(source, present, number)}) WHERE {met}"


def attach(connection: duckdb.DuckDBPyConnection, path: str, alias: str) -> list[str]:
    """Open the DuckDB file of an artifact; the columns of its rows."""
    connection.execute(f"ATTACH {text(path)} AS {alias} (READ_ONLY)")
    described = connection.execute(f"DESCRIBE {alias}.main.rows").fetchall()
    return [str(column[0]) for column in described]


def numbered(rows: pa.Table) -> pa.Table:
    """The rows with their places; a column that has this name already is none of the table's."""
    if DOCUMENT in rows.schema.names:
        raise InvalidInput(f"a column cannot be called {DOCUMENT!r}")
    return rows.append_column(DOCUMENT, pa.array(np.arange(rows.num_rows), pa.int64()))


def bits(found: pa.Table, size: int) -> bytes:
    """The numbers as a bitmap, the lowest bit first."""
    mask: npt.NDArray[np.bool_] = np.zeros(size, np.bool_)
    for chunk in found.column(0).chunks:
        mask[np.frombuffer(chunk.buffers()[1], "<i8")[chunk.offset : chunk.offset + len(chunk)]] = True
    return np.packbits(mask, bitorder="little").tobytes()
