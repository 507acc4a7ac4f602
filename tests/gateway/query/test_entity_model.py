"""Thousands of random steps on entities, against a dictionary: what every reader sees is what the rule says."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from frazil.lake.catalog import load_entity
from tests.entity_model import Model, Row, fold, history_rows, replayed
from tests.gateway.query.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]
COLUMNS = {"k": "long", "part": "string", "a": "string", "n": "int", "tags": "list<string>"}
VALUES = ("a", "n", "tags")
START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 40
EVENTS = 30


class Walk:
    """One entity, what was sent to it, and what is random about it."""

    def __init__(self, house: House, table: str, seed: int) -> None:
        self.house = house
        self.table = table
        self.random = random.Random(seed)
        self.clock = 0
        self.committed = 0
        self.sent: list[Row] = []

    def event(self) -> Row:
        """An event about one of few keys; one in four comes late, many at the same time as the one before."""
        self.clock += self.random.choice((0, 0, 1, 3))
        late = self.random.randint(1, 20) if self.random.random() < 0.25 else 0
        op = self.random.choices(("upsert", "patch", "delete"), (4, 4, 1))[0]
        given = [name for name in VALUES if self.random.random() < 0.6] if op == "patch" else list(VALUES)
        values: Row = {
            "a": self.random.choice(("x", "y", None)),
            "n": self.random.choice((self.random.randint(0, 9), None)),
            "tags": self.random.choice((["p", None], [], None)),
        }
        data = {} if op == "delete" else {name: values[name] for name in given}
        key = {"k": self.random.randint(0, 40), "part": self.random.choice("ab")}
        return {"op": op, "ts": START + timedelta(seconds=self.clock - late), "key": key, "data": data}

    async def send(self, count: int) -> None:
        events = [self.event() for _ in range(count)]
        body = [
            {"op": e["op"], "ts": e["ts"].isoformat(), "data": {**e["key"], **e["data"]}}
            | ({} if self.random.random() < 0.9 else {"actor": "somebody"})
            for e in events
        ]
        await self.house.running.accept(body, table=self.table)
        self.sent += events

    def expected(self, events: list[Row]) -> list[list[Any]]:
        model = Model(("k", "part"), VALUES)
        for at, event in enumerate(events):
            patch = list(event["data"]) if event["op"] == "patch" else None
            nulls = dict.fromkeys(VALUES)
            system = {"_seq": at, "_op": event["op"], "_ts": event["ts"], "_patch": patch}
            model.take({**nulls, **event["data"], **event["key"], **system})
        return sorted([row["k"], row["part"], *(row[name] for name in VALUES)] for row in model.there().values())

    async def seen(self, freshness: str) -> list[list[Any]]:
        return await self.house.rows(f"SELECT k, part, a, n, tags FROM {self.table}", freshness=freshness)


def ordered(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=lambda row: (row[0], row[1]))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3, 4))])
async def test_every_reader_sees_what_the_rule_says(house: House, seed: int) -> None:
    table = await house.table(COLUMNS, kind="entity", key=["k", "part"])
    walk = Walk(house, table, seed)
    name = f"main.{table}"
    for step in range(STEPS):
        await walk.send(walk.random.randint(1, EVENTS))
        if walk.random.random() < 0.4:
            await house.commit(f"{table}__history", trim=walk.random.random() < 0.5)
            walk.committed = len(walk.sent)
        if walk.random.random() < 0.25 and house.lake.table(f"{name}__history").snapshot_id is not None:
            entity = load_entity(house.lake, name)
            seqs = [row["_seq"] for row in history_rows(house.lake, name) if row["_seq"] >= entity.base.watermark]
            below = walk.random.choice(seqs) + 1 if seqs and walk.random.random() < 0.3 else None
            fold(house.lake, name, below=below)
        if walk.random.random() < 0.3:
            await house.running.gateway.directory.refresh()
        live = walk.expected(walk.sent)
        assert ordered(await walk.seen("live")) == ordered(live), f"live, step {step}"
        committed = walk.expected(walk.sent[: walk.committed])
        assert ordered(await walk.seen("committed")) == ordered(committed), f"committed, step {step}"
        counted = await house.rows(f"SELECT count(*), count(DISTINCT (k, part)) FROM {table}")
        assert counted == [[len(live), len(live)]], f"step {step}"
        some = walk.random.randint(0, 40)
        found = await house.rows(f"SELECT k, part, a, n, tags FROM {table} WHERE k = {some} AND n >= 5")
        assert ordered(found) == ordered([r for r in live if r[0] == some and r[3] is not None and r[3] >= 5])
    await house.commit(f"{table}__history")
    entity = load_entity(house.lake, name)
    read = replayed(entity, history_rows(house.lake, name)).there().values()
    assert ordered([[row["k"], row["part"], *(row[v] for v in VALUES)] for row in read]) == ordered(live)
    assert len(history_rows(house.lake, name)) == len(walk.sent), "the history has every event once"
