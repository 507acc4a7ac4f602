"""Thousands of random steps against a dictionary: every search finds what was there at its token, and nothing else."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.embedding import Vectors, unit
from frazil.events import Token
from frazil.lake.bulk import FileWriter, Load, Replaces, load_position, plan_files, publish_load
from frazil.lake.catalog import load_entity
from frazil.serving.artifacts import ArtifactEntry
from frazil.serving.search import FreshGap, Searchable
from tests.entity_model import Model as EntityModel
from tests.entity_model import fold
from tests.gateway.search.answers.conftest import SearchHouse

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORDS = "ice river floe drift harbour lantern rope keel mast tide gull fog".split()
COLUMNS = {"k": "long", "title": "string", "body": "string", "year": "long"}
VALUES = ("title", "body", "year")
START = datetime(2026, 1, 1, tzinfo=UTC)
MODES = ("text", "vector", "hybrid")
Row = dict[str, Any]


class Words:
    """A model whose vectors are sums of those of the words: quick, and different for different texts."""

    name, version, dims = "words", "1", 16

    def __init__(self) -> None:
        some = np.random.default_rng(7).standard_normal((len(WORDS), self.dims)).astype(np.float32)
        self._vectors = dict(zip(WORDS, some, strict=True))

    def embed(self, texts: Sequence[str]) -> Vectors:
        sums = [sum((self._vectors[w] for w in text.split() if w in self._vectors), np.zeros(16)) for text in texts]
        found: Vectors = unit(np.array(sums, dtype=np.float32).reshape(-1, self.dims))
        return found


@dataclass
class Walk:
    house: SearchHouse
    table: str
    random: random.Random
    number: int = 0
    sent: list[Row] = field(default_factory=list)
    """Everything that was published, in order."""
    committed: int = 0
    loads: dict[int, list[Row]] = field(default_factory=dict)
    position: int = -1
    clock: int = 0
    entries: list[ArtifactEntry] = field(default_factory=list)
    at: int = -1
    """Which of the entries serves."""

    @property
    def name(self) -> str:
        return f"main.{self.table}"

    @property
    def searchable(self) -> Searchable:
        return self.house.library.served(self.name).searchable

    def text(self) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, 5)))

    def values(self) -> Row:
        return {
            "title": self.random.choice((self.text(), None)),
            "body": self.text(),
            "year": self.random.randint(2000, 2009),
        }

    async def publish(self) -> None:
        events = [self.event() for _ in range(self.random.randint(1, 8))]
        token = await self.house.publish(self.table, *(wire for _, wire in events))
        self.sent += [row for row, _ in events]
        (mark,) = Token.parse(token).marks.values()
        self.position = mark.position

    def event(self) -> tuple[Row, Row]:
        raise NotImplementedError

    def state(self, events: Iterable[Row]) -> dict[Any, Row]:
        raise NotImplementedError

    async def commit(self) -> None:
        fed = self.name if self.house.lake.table(self.name).spec.kind == "log" else f"{self.name}__history"
        await self.house.commit(fed, trim=self.random.random() < 0.5)
        self.committed = len(self.sent)

    async def other(self) -> None:
        """What only this kind of table has."""

    async def build(self) -> None:
        self.entries.append(self.house.library.build(self.name))

    async def swap(self) -> None:
        if self.at + 1 < len(self.entries):
            self.house.library.swap(self.name, self.entries[-1])
            self.at = len(self.entries) - 1

    async def roll_back(self) -> None:
        if self.at < 1:
            return
        # What would be needed below the previous generation is forgotten: then it is said, and the newer one serves.
        with contextlib.suppress(FreshGap):
            self.house.library.swap(self.name, self.entries[self.at - 1], going_back=True)
            self.at -= 1

    async def search(self) -> None:
        freshness = self.random.choice(("live", "live", "committed"))
        mode = self.random.choice(MODES)
        query = self.text()
        asked: Row = {"mode": mode, "freshness": freshness, "k": 1000, "snippet": 0, "timeout_s": 30}
        if self.random.random() < 0.3 and self.sent and (freshness == "live" or self.committed == len(self.sent)):
            asked["min_token"] = str(Token.of(self.name, self.stream(), self.position))
        state = self.state(self.sent if freshness == "live" else self.sent[: self.committed])
        if self.random.random() < 0.5:
            year = self.random.randint(2000, 2010)
            asked["filter"] = f"year < {year}"
            state = {key: row for key, row in state.items() if row["year"] is not None and row["year"] < year}
        answer = await self.house.search(self.table, query, **asked)
        self.judge(answer, state, query, mode)
        (mark,) = Token.parse(answer["token"]).marks.values()
        if freshness == "live":
            assert mark.position >= self.position
        else:
            assert answer["token"] == await self.house.sql_token(self.table, "committed")

    def stream(self) -> str:
        table = self.house.lake.table(self.name)
        fed = load_entity(self.house.lake, self.name).history if table.spec.kind == "entity" else table
        return str(fed.stream_identity)

    def judge(self, answer: Any, state: dict[Any, Row], query: str, mode: str) -> None:
        hits = {hit["id"]: hit for hit in answer["hits"]}
        assert len(hits) == len(answer["hits"]), "nothing is found twice"
        worded = {key for key, row in state.items() if {*query.split()} & {*_words(row)}}
        vectors = self._scores(state, query)
        wanted = {"text": worded, "vector": {*vectors}, "hybrid": worded | {*vectors}}[mode]
        assert hits.keys() == wanted, (mode, hits.keys() ^ wanted)
        for key, hit in hits.items():
            assert {name: hit["row"][name] for name in VALUES} == {name: state[key][name] for name in VALUES}
            if mode != "text" and key in vectors:
                assert hit["vector_score"] == pytest.approx(vectors[key], abs=1e-4)
        # Further down, hybrid searches put the fusion of deeper rankings behind that of the first hundred.
        scores = [hit["score"] for hit in answer["hits"][: 50 if mode == "hybrid" else None]]
        assert scores == sorted(scores, reverse=True)

    def _scores(self, state: dict[Any, Row], query: str) -> dict[Any, float]:
        keys = list(state)
        pieces = self.searchable.in_pieces([state[key] for key in keys])
        asked = self.searchable.model.embed([query])[0] if self.searchable.model else np.zeros(16)
        return {key: float((cut.vectors @ asked).max()) for key, cut in zip(keys, pieces, strict=True) if len(cut.of)}


class LogWalk(Walk):
    def event(self) -> tuple[Row, Row]:
        self.number += 1
        row = {"_id": f"e{self.number}", "k": self.number, **self.values()}
        return row, {"id": row["_id"], "data": {name: row[name] for name in ("k", *VALUES)}}

    def state(self, events: Iterable[Row]) -> dict[Any, Row]:
        return {row["_id"]: row for row in (*events, *(row for rows in self.loads.values() for row in rows))}

    async def other(self) -> None:
        """A bulk load; seldom, and before any event was committed, one in place of everything."""
        table = self.house.lake.table(self.name)
        rows = []
        for _ in range(self.random.randint(1, 6)):
            self.number += 1
            rows.append({"_id": f"l{self.number}", "k": self.number, **self.values()})
        self.clock += 1
        seq = load_position(START + timedelta(seconds=self.clock))
        system = {"_seq": seq, "_op": "insert", "_ts": START, "_received_at": START}
        with FileWriter(plan_files(self.house.lake, table)) as writer:
            writer.write(pa.Table.from_pylist([{**row, **system} for row in rows], table.spec.row_schema()))
        replaces = Replaces.ALL if not self.committed and self.random.random() < 0.5 else Replaces.NOTHING
        load = Load(f"load-{self.clock}", len(rows), replaces, position=seq)
        publish_load(self.house.lake, self.name, load, writer.written)
        if replaces is Replaces.ALL:
            self.loads.clear()
        self.loads[seq] = rows
        await self.house.running.gateway.directory.refresh()


class EntityWalk(Walk):
    def event(self) -> tuple[Row, Row]:
        self.clock += self.random.choice((0, 1, 3))
        late = self.random.randint(1, 20) if self.random.random() < 0.2 else 0
        op = self.random.choices(("upsert", "patch", "delete"), (4, 2, 2))[0]
        given = [name for name in VALUES if op == "upsert" or (op == "patch" and self.random.random() < 0.6)]
        values = self.values()
        data = {name: values[name] for name in given}
        ts, key = START + timedelta(seconds=self.clock - late), self.random.randint(0, 60)
        row = {"_op": op, "_ts": ts, "_patch": given, "k": key, **dict.fromkeys(VALUES), **data}
        return row, {"op": op, "ts": ts.isoformat(), "data": {"k": key, **data}}

    def state(self, events: Iterable[Row]) -> dict[Any, Row]:
        model = EntityModel(("k",), VALUES)
        for event in events:
            model.take(event)
        return {key: row for (key,), row in model.there().items()}

    async def other(self) -> None:
        if self.committed:
            fold(self.house.lake, self.name)
            await self.house.running.gateway.directory.refresh()


def _words(row: Row) -> list[str]:
    return f"{row['title'] or ''} {row['body'] or ''}".split()


async def walk(house: SearchHouse, kind: type[Walk], seed: int, steps: int) -> None:
    more = {"kind": "entity", "key": ["k"]} if kind is EntityWalk else {}
    table = await house.table(COLUMNS, text=["title", "body"], **more)
    house.library.opened[f"main.{table}"] = Words()
    going = kind(house, table, random.Random(seed))
    choices = [going.search, going.publish, going.commit, going.other, going.build, going.swap, going.roll_back]
    for step in range(steps):
        (chosen,) = going.random.choices(choices, (10, 4, 2, 1, 0.5, 0.5, 0.4))
        try:
            await chosen()
        except BaseException as error:
            error.add_note(f"step {step}: {chosen.__name__}, seed {seed}")
            raise
    assert going.at >= 0, "a generation served"


@pytest.mark.parametrize("kind", [LogWalk, EntityWalk])
async def test_every_search_finds_what_was_there_at_its_token(house: SearchHouse, kind: type[Walk]) -> None:
    await walk(house, kind, 1, 150)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("kind", [LogWalk, EntityWalk])
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
async def test_thousands_of_steps(house: SearchHouse, kind: type[Walk], seed: int) -> None:
    await walk(house, kind, seed, 400)
