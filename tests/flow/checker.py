"""The independent judge: what the producers were promised against what another engine finds in the tables.

Nothing of frazil is used here. The producers' logs say what was sent and acknowledged; the catalog's own database says
which metadata file is the table; DuckDB, which wrote none of it, reads the rows.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from tests.flow.producers import checksum

Locate = Callable[[str], str]
"""From a table's name to its current metadata file."""


@dataclass(frozen=True)
class Row:
    event_id: str
    producer: int
    number: int
    words: str
    amount: Decimal
    checksum: str

    def is_intact(self) -> bool:
        return self.checksum == checksum(self.event_id, self.producer, self.number, self.words, self.amount)


@dataclass(frozen=True)
class Verdict:
    """All of `lost`, `duplicated`, `phantom` and `damaged` are empty, or a promise was broken."""

    lost: frozenset[str]
    """Acknowledged and not in the table."""
    duplicated: frozenset[str]
    """More than once in the table."""
    phantom: frozenset[str]
    """In the table and never sent to it."""
    damaged: frozenset[str]
    """In the table with other values than were sent."""
    sent: int
    acked: int
    stored: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.phantom or self.damaged)

    def __str__(self) -> str:
        counts = {name: len(getattr(self, name)) for name in ("lost", "duplicated", "phantom", "damaged")}
        some = {name: sorted(getattr(self, name))[:5] for name, count in counts.items() if count}
        return f"sent {self.sent}, acked {self.acked}, stored {self.stored}, {counts} {some or ''}"


def verdict(logs: Path, stored: Mapping[str, Iterable[Row]]) -> Verdict:
    """Compare the logs of all producers in the folder with the rows of each table."""
    sent: dict[str, set[str]] = {table: set() for table in stored}
    acked: dict[str, set[str]] = {table: set() for table in stored}
    for log in sorted(logs.glob("*.log")):
        for line in log.read_text().splitlines():
            what, table, ids = line.split("\t")
            if what in ("sent", "acked") and table in stored:
                (sent if what == "sent" else acked)[table].update(ids.split(","))
    lost: set[str] = set()
    duplicated: set[str] = set()
    phantom: set[str] = set()
    damaged: set[str] = set()
    rows = 0
    for table, found in stored.items():
        counts: Counter[str] = Counter()
        for row in found:
            counts[row.event_id] += 1
            if not row.is_intact():
                damaged.add(row.event_id)
        rows += counts.total()
        lost |= acked[table] - counts.keys()
        duplicated |= {event_id for event_id, count in counts.items() if count > 1}
        phantom |= counts.keys() - sent[table]
    return Verdict(
        lost=frozenset(lost),
        duplicated=frozenset(duplicated),
        phantom=frozenset(phantom),
        damaged=frozenset(damaged),
        sent=sum(map(len, sent.values())),
        acked=sum(map(len, acked.values())),
        stored=rows,
    )


def in_sqlite(catalog: Path, *, namespace: str = "main") -> Locate:
    """Tables of an SQLite catalog, read past every library that knows Iceberg."""

    def locate(table: str) -> str:
        connection = sqlite3.connect(f"{catalog.absolute().as_uri()}?mode=ro", uri=True, timeout=60)
        try:
            found = connection.execute(
                "SELECT metadata_location FROM iceberg_tables"
                " WHERE catalog_name = 'frazil' AND table_namespace = ? AND table_name = ?",
                (namespace, table),
            ).fetchone()
        finally:
            connection.close()
        assert found is not None, f"the catalog has no table {table}"
        return str(found[0])

    return locate


def read_rows(locate: Locate, table: str, *, s3: Mapping[str, str] | None = None) -> list[Row]:
    """The rows of a table as DuckDB finds them; `s3` has `endpoint`, `key_id` and `secret` of the store."""
    found = scanned(locate, table, "_id, producer, number, words, amount, checksum", s3=s3)
    return [Row(*row) for row in found]


def scanned(locate: Locate, table: str, select: str, *, s3: Mapping[str, str] | None = None) -> list[tuple[Any, ...]]:
    """What DuckDB answers to `SELECT …` of a table."""
    with duckdb.connect() as connection:
        _load(connection, "avro", "iceberg", *(["httpfs"] if s3 else []))
        if s3:
            words = {name: word.replace("'", "''") for name, word in s3.items()}
            connection.execute(
                f"CREATE SECRET (TYPE s3, KEY_ID '{words['key_id']}', SECRET '{words['secret']}',"
                f" ENDPOINT '{words['endpoint']}', REGION 'us-east-1', URL_STYLE 'path', USE_SSL false)"
            )
        location = locate(table).removeprefix("file://")
        return connection.execute(f"SELECT {select} FROM iceberg_scan(?)", [location]).fetchall()


def _load(connection: duckdb.DuckDBPyConnection, *names: str) -> None:
    """Load an extension out of its wheel; nothing is downloaded."""
    for name in names:
        folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / f'{name}.duckdb_extension'}'")
