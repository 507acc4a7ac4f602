"""Thousands of random steps against a dictionary: each answer is the truth at the very position that it names."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil.serving import Bitmap
from frazil.serving.artifacts import ArtifactEntry
from frazil.serving.search import Allowed, DocumentChange, SearchQuery, SearchResult, SearchState
from frazil.serving.search.fusion import Ranking, fuse
from frazil.serving.text.analysis import stems
from tests.serving.search.world import TEXT, Row, World, document, search, searchable
from tests.serving.sentences import sentences

IDS = 60
STEPS = int(os.environ.get("SEARCH_STEPS", "4000"))
SEARCHED = searchable()
WORDS = sorted({word for text in sentences()[:1200] for word in text.lower().split() if word.isalpha()})


def frozen(row: Row) -> tuple[Any, ...]:
    return tuple(row.values())


@cache
def _vectors(row: tuple[Any, ...]) -> Any:
    (pieces,) = SEARCHED.in_pieces([dict(zip(SEARCHED.schema.names, row, strict=True))])
    return pieces.vectors


@cache
def _stems(text: str) -> frozenset[str]:
    return frozenset(stems("english").terms(text))


class Truth:
    """All changes ever made, and what they come to at a position."""

    def __init__(self) -> None:
        self.changes: list[DocumentChange] = []
        self._known: tuple[int, dict[str, Row]] = (1, {})

    def write(self, key: str, row: Row | None) -> None:
        self.changes.append(DocumentChange(len(self.changes) + 1, (key,), row))

    @property
    def head(self) -> int:
        return len(self.changes) + 1

    def at(self, position: int) -> dict[str, Row]:
        known, documents = self._known if self._known[0] <= position else (1, {})
        documents = dict(documents)
        for change in self.changes[known - 1 : position - 1]:
            documents.pop(change.key[0], None)
            if change.row is not None:
                documents[change.key[0]] = dict(change.row)
        self._known = position, dict(documents)
        return documents


def nearest(documents: Iterable[Row], query: str) -> dict[str, float]:
    assert SEARCHED.model is not None
    vector = SEARCHED.model.embed([query])[0]
    found = {}
    for row in documents:
        vectors = _vectors(frozen(row))
        if len(vectors):
            found[row["_id"]] = float((vectors @ vector).max())
    return found


def worded(documents: Iterable[Row], some: list[str], required: list[str], excluded: list[str]) -> set[str]:
    found = set()
    for row in documents:
        held = frozenset().union(*(_stems(row[column] or "") for column in TEXT))

        def has(word: str, held: frozenset[str] = held) -> bool:
            return set(stems("english").terms(word)) <= held

        if any(map(has, excluded)) or not all(map(has, required)):
            continue
        if required or any(map(has, some)):
            found.add(row["_id"])
    return found


def before(year: int) -> Any:
    """A filter, judged on the rows of the state that is searched."""

    def judged(reading: SearchState) -> Allowed:
        fresh = np.array([value < year for value in reading.view.rows.column("year").to_pylist()], dtype=np.bool_)
        if reading.generation is None:
            return Allowed(fresh=Bitmap.of_mask(fresh))
        rows = reading.generation.contents.rows.column("year").to_numpy() < year
        return Allowed(Bitmap.of_mask(rows), Bitmap.of_mask(fresh))

    return judged


class Story:
    def __init__(self, folder: Path, seed: int) -> None:
        self.world = World(folder, SEARCHED)
        self.choose = random.Random(seed)
        self.truth = Truth()
        self.serving = self.world.serving()
        self.built: list[ArtifactEntry] = []
        self.previous: ArtifactEntry | None = None
        self.current: ArtifactEntry | None = None
        self.fed = 1
        self.serving.apply((), 1)
        self.searches = self.swaps = self.fresh_seen = self.hits = 0

    def step(self) -> None:
        chance = self.choose.random()
        if chance < 0.40:
            self.write()
        elif chance < 0.60:
            self.feed()
        elif chance < 0.62:
            self.build()
        elif chance < 0.65:
            self.swap()
        else:
            self.search()

    def write(self) -> None:
        number = self.choose.randrange(IDS)
        if self.choose.random() < 0.3:
            self.truth.write(f"d{number}", None)
        else:
            row = document(number, salt=self.choose.randrange(5))
            if self.choose.random() < 0.05:
                row["body"] = None if self.choose.random() < 0.5 else "   "
            self.truth.write(f"d{number}", row)

    def feed(self) -> None:
        """Some of what was written; now and then some of it for a second time."""
        if self.choose.random() < 0.1:
            first = self.choose.randint(1, self.fed)
            upto = self.choose.randint(first, self.fed)
            self.serving.apply(self.truth.changes[first - 1 : upto - 1], upto)
            return
        upto = self.choose.randint(self.fed, self.truth.head)
        first = self.fed if self.choose.random() < 0.8 else self.choose.randint(1, self.fed)
        self.serving.apply(self.truth.changes[first - 1 : upto - 1], upto)
        self.fed = upto

    def build(self) -> None:
        watermark = self.choose.randint(self.current.cut.watermark if self.current else 1, self.truth.head)
        rows = list(self.truth.at(watermark).values())
        self.choose.shuffle(rows)
        if rows:
            self.built.append(self.world.build(rows, watermark))

    def swap(self) -> None:
        if self.previous is not None and self.choose.random() < 0.2:
            entry, self.previous, going_back = self.previous, None, True
        elif self.built:
            entry = max(self.built, key=lambda built: built.cut.watermark)
            self.built, self.previous, going_back = [], self.current, False
            if self.current is not None and entry.cut.watermark < self.current.cut.watermark:
                self.previous = None
                return
        else:
            return
        self.serving.swap(entry, going_back=going_back)
        self.current = entry
        self.swaps += 1

    def search(self) -> None:
        year = self.choose.choice([None, None, 2001, 2005, 2012, 2019])
        allowed = None if year is None else before(year)
        self.searches += 1
        (self.by_vector, self.by_text, self.by_both)[self.searches % 3](year, allowed)

    def by_vector(self, year: int | None, allowed: Any) -> None:
        query = self.choose.choice(sentences()[:1200])
        k, offset = self.choose.choice([1, 3, 10, 100]), self.choose.choice([0, 0, 2])
        found = search(self.serving, SearchQuery(query, mode="vector", k=k, offset=offset), allowed)
        documents = self.checked(found, year)
        scores = nearest(documents.values(), query)
        expected = sorted(scores.values(), reverse=True)[offset : offset + k]
        assert [hit.score for hit in found.hits] == pytest.approx(expected, abs=1e-5)
        for hit in found.hits:
            assert hit.score == pytest.approx(scores[hit.key[0]], abs=1e-5)

    def by_text(self, year: int | None, allowed: Any) -> None:
        some, required, excluded = (
            self.choose.sample(WORDS, self.choose.choice(n)) for n in ((1, 3), (0, 0, 1), (0, 1))
        )
        common = self.choose.choice(["return", "the", "value", "string"])
        text = " ".join([common, *some, *(f"+{word}" for word in required), *(f"-{word}" for word in excluded)])
        found = search(self.serving, SearchQuery(text, mode="text", k=200), allowed)
        documents = self.checked(found, year)
        assert {hit.key[0] for hit in found.hits} == worded(documents.values(), [common, *some], required, excluded)
        scores = [hit.score for hit in found.hits]
        assert scores == sorted(scores, reverse=True)

    def by_both(self, year: int | None, allowed: Any) -> None:
        query = " ".join(self.choose.choice(sentences()[:1200]).split()[:6])
        found = search(self.serving, SearchQuery(query, k=10, text_weight=0.5), allowed)
        self.checked(found, year)
        near = search(self.serving, SearchQuery(query, mode="vector", k=200), allowed)
        by_words = search(self.serving, SearchQuery(query, mode="text", k=200), allowed)
        rankings = [
            Ranking([hit.key for hit in near.hits]),
            Ranking([hit.key for hit in by_words.hits], weight=0.5),
        ]
        fused = dict(fuse(rankings, 400))
        expected = sorted(fused.values(), reverse=True)[:10]
        assert [hit.score for hit in found.hits] == pytest.approx(expected)
        assert all(hit.score == pytest.approx(fused[hit.key]) for hit in found.hits)

    def checked(self, found: SearchResult, year: int | None) -> dict[str, Row]:
        """What holds of any answer; returns the documents that it may be from."""
        watermark = 0 if self.current is None else self.current.cut.watermark
        assert found.position == max(self.fed, watermark)
        assert found.generation == (None if self.current is None else self.current.generation)
        documents = self.truth.at(found.position)
        keys = [hit.key[0] for hit in found.hits]
        assert len(set(keys)) == len(keys)
        for hit in found.hits:
            assert dict(hit.row) == documents[hit.key[0]], "the newest version, all of it"
            if hit.snippet is not None and hit.snippet_column:
                assert hit.snippet.text in documents[hit.key[0]][hit.snippet_column]
        self.hits += len(found.hits)
        self.fresh_seen += sum(hit.fresh for hit in found.hits)
        return {key: row for key, row in documents.items() if year is None or row["year"] < year}


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(1, 1500), (2, 1500), pytest.param(3, STEPS, marks=[pytest.mark.slow, pytest.mark.soak])],
    ids=str,
)
def test_every_answer_is_the_truth_at_its_position(tmp_path: Path, seed: int, steps: int) -> None:
    story = Story(tmp_path, seed)
    for _ in range(steps):
        story.step()
    assert story.searches > steps // 4 and story.swaps > steps // 100
    assert story.fresh_seen > 200 and story.hits - story.fresh_seen > 200, "answers came from both"
