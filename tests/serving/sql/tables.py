"""Iceberg tables made with PyIceberg alone, for queries to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.serving.sql import Relation, TailRows
from frazil.storage import Warehouse

ROWS = pa.schema(
    [
        pa.field("_seq", pa.int64()),
        pa.field("_id", pa.string()),
        pa.field("team", pa.string()),
        pa.field("secret", pa.string()),
        pa.field("n", pa.int32()),
    ]
)


def rows(first: int, last: int, *, team: str = "blue", secret: str = "12", schema: pa.Schema = ROWS) -> pa.Table:  # noqa: S107
    """Rows of the positions first … last - 1."""
    numbers = range(first, last)
    columns: dict[str, list[Any]] = {
        "_seq": list(numbers),
        "_id": [f"e{number}" for number in numbers],
        "team": [team for _ in numbers],
        "secret": [secret for _ in numbers],
        "n": list(numbers),
    }
    return pa.table({name: columns.get(name, [None] * len(numbers)) for name in schema.names}, schema=schema)


@dataclass
class House:
    """A warehouse with a catalog in memory."""

    folder: Path
    catalog: SqlCatalog = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.catalog = SqlCatalog("house", uri="sqlite:///:memory:", warehouse=self.warehouse.url)
        self.catalog.create_namespace("main")

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(f"file://{self.folder}")

    def table(self, name: str, batches: Sequence[pa.Table], schema: pa.Schema = ROWS) -> Table:
        made = self.catalog.create_table(f"main.{name}", schema=schema)
        for batch in batches:
            made.append(batch)
        return made


def relation(table: Table, *, name: str = "t", columns: pa.Schema = ROWS, **more: Any) -> Relation:
    snapshot = table.current_snapshot()
    return Relation(
        "main", name, columns, table.metadata_location, snapshot.snapshot_id if snapshot is not None else None, **more
    )


def tail_of(key: str, whole: pa.Table, start: int, end: int, asked: list[int] | None = None) -> TailRows:
    """A cut of a stream; `asked` notes from where its rows were wanted."""

    def rows_from(position: int) -> pa.Table:
        if asked is not None:
            asked.append(position)
        positions = whole.column("_seq").to_pylist()
        return whole.filter(pa.array([max(start, position) <= at < end for at in positions]))

    return TailRows(key, start, end, rows_from)
