"""What `bench query` asks, and what it asks about: a table with many committed rows and a tail that nobody commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import load
from benchmarks.processes import a_program
from benchmarks.report import say
from frazil.client import Client
from frazil.errors import FrazilError
from frazil.runtime import DataDir
from frazil.settings import Settings

TABLE = "bench"
SMALL_TABLE = "fresh"
PRODUCERS = 8
BY_ID = "SELECT _id, user_id, kind, amount FROM {table} WHERE _id = ?"
# Only a writer that waits for its events, or a full batch, makes the pipeline commit: what is sent later stays.
CONFIGURATION = "[pipeline]\nmax_batch_age_seconds = 3600\n"


@dataclass(frozen=True)
class Filled:
    """The table as it stands while everything is measured."""

    rows: int
    tail: int
    run: str
    """What the ids of the committed rows begin with."""
    metadata: str

    def id_of(self, number: int) -> str:
        return f"{self.run}-{number:012d}"


@dataclass(frozen=True)
class Shape:
    """A kind of query. Each time it is asked with other parameters, so that nobody can remember an answer."""

    sql: str
    parameters: Callable[[np.random.Generator, Filled], list[Any]]
    rows: int | None = None
    """How many rows must come; None where chance decides."""

    def queries(self, seed: int, filled: Filled, count: int) -> list[dict[str, Any]]:
        rng = np.random.default_rng(seed)
        return [{"sql": self.sql, "parameters": self.parameters(rng, filled)} for _ in range(count)]


SHAPES: Mapping[str, Shape] = {
    "point_by_id": Shape(
        BY_ID.format(table=TABLE), lambda rng, filled: [filled.id_of(int(rng.integers(filled.rows)))], rows=1
    ),
    "point_by_user": Shape(
        f"SELECT _id, kind, amount FROM {TABLE} WHERE user_id = ?",  # noqa: S608
        lambda rng, filled: [int(rng.integers(1_000_000))],
    ),
    "filtered_aggregate": Shape(
        f"SELECT count(*), avg(amount) FROM {TABLE} WHERE kind = 'order' AND user_id < ?",  # noqa: S608
        lambda rng, filled: [int(rng.integers(1_000, 10_000))],
        rows=1,
    ),
    "count": Shape(f"SELECT count(*) FROM {TABLE}", lambda rng, filled: [], rows=1),  # noqa: S608
    "group_by": Shape(
        f"SELECT kind, count(*), sum(amount) FROM {TABLE} GROUP BY kind ORDER BY kind",  # noqa: S608
        lambda rng, filled: [],
        rows=4,
    ),
    "top_k": Shape(
        f"SELECT _id, amount FROM {TABLE} WHERE amount < ? ORDER BY amount DESC, _id LIMIT 10",  # noqa: S608
        lambda rng, filled: [float(rng.integers(500, 1_000))],
        rows=10,
    ),
}
SMALL = ("point_by_id", "point_by_user", "filtered_aggregate", "count")
BOMBS = (
    "SELECT max(len(l)) FROM (SELECT list(repeat('x', 1000) || i) AS l FROM range(1000000000) AS r(i))",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT (i * 31) % 1000003 FROM n) SELECT max(i) FROM n",
    f"SELECT max((a.user_id * b.user_id + c.user_id) % 1009) FROM {TABLE} a, {TABLE} b, {TABLE} c",  # noqa: S608
)
"""Memory, time, and a cross join."""
BOMB_SECONDS = 5.0


def mixed(seed: int, filled: Filled, count: int = 200) -> list[dict[str, Any]]:
    """Small queries of every kind in turn."""
    by_shape = [SHAPES[name].queries(seed + at, filled, -(-count // len(SMALL))) for at, name in enumerate(SMALL)]
    return [query for turn in zip(*by_shape, strict=True) for query in turn]


def reader_token(client: Client, name: str) -> str:
    """A token that may ask, and write to be read back, as often as it likes: the rate limit is not what is measured."""
    scopes = ["sql", *(f"{verb}:{table}" for verb in ("read", "ingest") for table in (TABLE, SMALL_TABLE))]
    return str(client.tokens.create(name, scopes, rate_per_second=100_000, burst=100_000)["token"])


def fill(client: Client, settings: Settings, folder: Path, *, rows: int, tail: int) -> Filled:
    """Publish `rows` events and wait for the last, then `tail` more that stay on the bus."""
    for table in (TABLE, SMALL_TABLE):
        client.create_table(**load.declaration(table))
    run = uuid.uuid4().hex[:16]
    access = {"FRAZIL_URL": settings.address, "FRAZIL_TOKEN": DataDir(settings.data_dir).read_token()}
    bodies = folder / "bodies"
    load.write_bodies(bodies, run, rows - 1)
    with a_program("producers", folder, environment=access) as producers:
        producers.ask({"bodies": str(bodies), "table": TABLE, "producers": PRODUCERS})
    last = load.ndjson(run, rows - 1, 1)
    client.publish_body(TABLE, last, "application/x-ndjson", wait=True, timeout_s=300)
    say(f"{rows:,} rows are committed")
    for body in load.bodies(uuid.uuid4().hex[:16], tail):
        client.publish_body(TABLE, body, "application/x-ndjson")
    client.publish_body(SMALL_TABLE, load.ndjson(run, 0, 1), "application/x-ndjson", wait=True)
    bodies.unlink()
    filled = Filled(rows, tail, run, str(client.table(TABLE)["metadata_location"]))
    check_state(client, filled)
    return filled


def check_state(client: Client, filled: Filled) -> None:
    """Raise unless the answers are made of exactly the snapshot and the tail that the figures speak of."""
    answer = client.sql(f"SELECT count(*) AS rows, count(DISTINCT _id) AS ids FROM {TABLE}")  # noqa: S608
    found, live = answer.rows()[0], answer.snapshots[TABLE].live_rows
    expected = filled.rows + filled.tail
    if found != {"rows": expected, "ids": expected} or live != filled.tail:
        raise FrazilError(
            f"expected {filled.rows} rows and a tail of {filled.tail}; found {found}, {live} of them live"
        )
