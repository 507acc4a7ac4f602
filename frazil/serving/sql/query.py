"""Query, relations and result: the values that pass between the gateway and the pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from frazil.serving.sql.worker.entity_overlay import EntityOverlay


@dataclass(frozen=True)
class TailRows:
    """Events above a snapshot: the rows with start <= _seq < end. A worker keeps them from one query to the next."""

    key: str
    """Names one stream of one table with one schema; a new key starts anew."""
    start: int
    end: int
    rows_from: Callable[[int], pa.Table]
    """The rows of this cut from a position on, in the schema of the rows. Called on the event loop, so it is cheap."""


@dataclass(frozen=True)
class Relation:
    """One table of a statement, as the worker must show it."""

    schema: str
    name: str
    columns: pa.Schema
    metadata: str | None
    """The address of the file that describes the table; None while nothing is committed."""
    snapshot_id: int | None
    """The snapshot to read; None for the one that is current in `metadata`, which then has all of `columns`."""
    tail: TailRows | None = None
    where: str | None = None
    masks: Mapping[str, str] = field(default_factory=dict)
    """By column: null, hash or redact."""
    hash_domains: Mapping[str, str] = field(default_factory=dict)
    """For each column that is masked by hash, what its salt is made from."""
    folding: EntityOverlay | None = None
    """For an entity: `metadata` is its base, `tail` the end of its history, and this is how they make its state."""
    lines: str | None = None
    """Instead of `metadata`: a glob of files with one JSON object a line."""


@dataclass(frozen=True)
class SqlQuery:
    sql: str
    owner: str
    parameters: list[Any] | dict[str, Any] | None = None
    format: str = "json"
    max_rows: int = 10_000
    max_bytes: int = 64 << 20
    timeout_seconds: float = 30.0


@dataclass(frozen=True)
class Result:
    columns: list[dict[str, str]]
    row_count: int
    truncated: bool
    body: bytes
    elapsed_ms: float
    queued_ms: float


@dataclass(frozen=True)
class TableRef:
    """A table that a statement names, and the view under which the statement to run reads it."""

    schema: str
    name: str
    reads: tuple[str, str]
    version: int | None = None
    as_of: datetime | None = None
    certain: bool = True


@dataclass(frozen=True)
class Statement:
    sql: str
    tables: tuple[TableRef, ...]
