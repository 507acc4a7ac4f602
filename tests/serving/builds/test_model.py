"""Random lives of a log and an entity: whenever they are built, the artifact is what a dictionary says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil.embedding import chunked, document_text, open_model
from frazil.lake.catalog import Lake, load_entity
from frazil.lake.derived import embeddings_table
from tests.entity_model import fold
from tests.lake.staging import append
from tests.pipeline.embeddings.place import NOTES
from tests.serving.builds.yard import Yard

WORDS = "ice river floe drift winter harbour signal lantern rope keel".split()
STEPS = 60


def text(chance: random.Random) -> str | None:
    if chance.random() < 0.1:
        return None
    sentences = [
        " ".join(chance.choices(WORDS, k=chance.randint(2, 6))).capitalize() + "." for _ in range(chance.randint(1, 5))
    ]
    return " ".join(sentences)


class Life:
    """One table, what it should hold, and steps that change both."""

    def __init__(self, yard: Yard, name: str, chance: random.Random) -> None:
        self.yard, self.name, self.chance = yard, name, chance
        self.rows: dict[Any, dict[str, Any]] = {}
        self.count = 0

    def change(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Build, and hold what a server would fetch against the dictionary."""
        self.yard.build(self.name)
        if self.yard.current(f"main.{self.name}") is None:
            assert not self.rows
            return
        held = self.yard.fetched(f"main.{self.name}")
        found = {self.key(row): {"title": row["title"], "body": row["body"]} for row in held.rows}
        assert found == self.rows and len(held.rows) == len(self.rows)
        spec = self.yard.lake.table(f"main.{self.name}").spec
        assert spec.searched is not None
        texts = {key: document_text([row["title"], row["body"]]) for key, row in self.rows.items()}
        expected = sorted(
            (str(key), chunk.number, chunk.text)
            for key, words in texts.items()
            for chunk in chunked(words, spec.searched.chunk)
        )
        keys = [str(self.key(row)) for row in held.rows]
        chunks = held.contents.chunks.to_pylist()
        assert sorted((keys[one["document"]], one["number"], one["text"]) for one in chunks) == expected
        if chunks:
            wanted = open_model("wordllama").embed([one["text"] for one in chunks])
            wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
            np.testing.assert_allclose(held.contents.vectors, wanted, atol=1e-5)

    def key(self, row: dict[str, Any]) -> Any:
        raise NotImplementedError


class LogLife(Life):
    def change(self) -> None:
        new = []
        for _ in range(self.chance.randint(1, 4)):
            self.count += 1
            new.append({"_id": f"e{self.count}", "title": text(self.chance), "body": text(self.chance)})
        if self.chance.random() < 0.3:
            self.yard.place.add(new, f"main.{self.name}")
        else:
            append(self.yard.lake, f"main.{self.name}", new)
        self.rows |= {row["_id"]: {"title": row["title"], "body": row["body"]} for row in new}

    def key(self, row: dict[str, Any]) -> Any:
        return row["_id"]


class EntityLife(Life):
    def change(self) -> None:
        new: list[dict[str, Any]] = []
        for _ in range(self.chance.randint(1, 4)):
            key = self.chance.randint(0, 9)
            if self.chance.random() < 0.3:
                new.append({"id": key, "_op": "delete"})
                self.rows.pop(key, None)
            else:
                row = {"title": text(self.chance), "body": text(self.chance)}
                new.append({"id": key, "_op": "upsert", **row})
                self.rows[key] = row
        append(self.yard.lake, f"main.{self.name}__history", new)
        if self.chance.random() < 0.3 and load_entity(self.yard.lake, f"main.{self.name}").unfolded_rows:
            fold(self.yard.lake, f"main.{self.name}")

    def key(self, row: dict[str, Any]) -> Any:
        return row["id"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_an_artifact_is_what_a_dictionary_says(lake: Lake, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    yard = Yard(lake, tmp_path)
    yard.place.declare()
    columns = {"id": "long", "title": "string", "body": "string"}
    yard.place.declare(**{**NOTES, "name": "things", "kind": "entity", "key": ["id"], "columns": columns})
    lives = [LogLife(yard, "notes", chance), EntityLife(yard, "things", chance)]
    for _ in range(STEPS):
        life = chance.choice(lives)
        what = chance.random()
        if what < 0.6:
            life.change()
        elif what < 0.7 and embeddings_table(lake, f"main.{life.name}") is not None:
            yard.place.embed(life.name, sweep=chance.random() < 0.3)
        else:
            life.check()
    for life in lives:
        life.check()
