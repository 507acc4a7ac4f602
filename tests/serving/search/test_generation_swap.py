"""Generations change places under load, and whatever is wrong with the next one, the old one serves."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Conflict, FrazilError, Unavailable
from frazil.serving.artifacts import ArtifactEntry, ArtifactRefused
from frazil.serving.artifacts.engine_versions import running_engines
from frazil.serving.search import (
    DocumentChange,
    FreshDocuments,
    FreshGap,
    Generation,
    SearchQuery,
    SearchResult,
    ServedGenerations,
)
from tests.serving.artifacts.samples import TABLE
from tests.serving.search.world import World, document, search, searchable

QUERIES = (
    SearchQuery("parse a date from a string", mode="vector", k=50, snippet_characters=0),
    SearchQuery("the return value of a function", mode="text", k=50),
    SearchQuery("open file -socket", mode="text", k=50),
    SearchQuery("threads that wait for a lock", mode="hybrid", k=50),
)
SWAPS = 300
PATIENCE_SECONDS = 120.0
CLIENTS = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def entries(world: World) -> list[ArtifactEntry]:
    """Artifacts of one age; the year of every row says which."""
    return [
        world.build([{**document(at, salt=salt), "year": salt} for at in range(30)], watermark=100) for salt in range(4)
    ]


def told(found: SearchResult) -> list[tuple[Any, ...]]:
    return [(hit.key, hit.score, hit.row["body"]) for hit in found.hits if hit.key != ("fresh",)]


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads change places ten times as often: more orders are tried, and none waits long for its turn."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 10)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("restless")
def test_every_answer_is_from_one_generation(world: World, entries: list[ArtifactEntry]) -> None:
    serving = world.serving(drain_seconds=PATIENCE_SECONDS)
    expected: dict[tuple[str | None, int], list[tuple[Any, ...]]] = {}
    for entry in entries:
        serving.swap(entry)
        for number, ask in enumerate(QUERIES):
            expected[entry.generation, number] = told(search(serving, ask))
    years = {entry.generation: salt for salt, entry in enumerate(entries)}
    assert len({str(answer) for answer in expected.values()}) == len(expected), "each answer tells its generation"
    over = threading.Event()
    wrong: list[Any] = []
    seen: list[str | None] = []

    def client(seed: int) -> None:
        choose = random.Random(seed)
        while not over.wait(0.01):  # swaps need the interpreter, too
            number = choose.randrange(len(QUERIES))
            try:
                found = search(serving, QUERIES[number])
            except BaseException as error:
                wrong.append(error)
                return
            seen.append(found.generation)
            fresh = [hit for hit in found.hits if hit.key == ("fresh",)]
            mixed = {hit.row["year"] for hit in found.hits if not hit.fresh} - {years.get(found.generation or "")}
            if mixed or (QUERIES[number].mode != "hybrid" and told(found) != expected[found.generation, number]):
                wrong.append((number, found))
            if found.position > 100 and [hit.row["year"] for hit in fresh if hit.fresh] != [found.position - 1]:
                wrong.append((number, found.position, fresh))

    def feeder() -> None:
        position = 101
        while not over.wait(0.01):
            body = "Return the value of a function: parse a date, open a file."
            row = {"_id": "fresh", "title": "fresh", "body": body, "year": position}
            serving.apply([DocumentChange(position, ("fresh",), row)], position + 1)
            position += 1

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)] + [
        threading.Thread(target=feeder)
    ]
    for thread in clients:
        thread.start()
    try:
        for number in itertools.count():
            if number >= SWAPS and len(seen) > SWAPS and set(seen) >= set(years):
                break  # where searches are slow, more swaps are made until enough of them were seen
            assert number < 20 * SWAPS, "searches do not come to an end"
            current = serving.status().generation
            # To and fro, as the last two are kept on the disk; and now and then one that must be fetched.
            swapped = serving.swap(entries[number % 2 if number % 25 else 2 + number // 25 % 2])
            assert swapped.previous == current and swapped.drained
    finally:
        over.set()
        for thread in clients:
            thread.join(PATIENCE_SECONDS)
    assert not wrong, wrong[:3]
    assert set(seen) == set(years)
    assert serving.status().draining == () and serving.status().trouble is None
    assert len(serving.fresh._slots.documents) < 1000, "what was replaced is swept"
    serving.close()
    with pytest.raises(Unavailable):
        search(serving, QUERIES[0])


def test_a_reader_finishes_on_what_it_began_with(world: World, entries: list[ArtifactEntry]) -> None:
    serving = world.serving(drain_seconds=0.01)
    serving.swap(entries[0])
    with serving.reading() as reading:
        before = reading.search(QUERIES[0])
        swapped = serving.swap(entries[1])
        assert not swapped.drained and serving.status().draining == (entries[0].generation,)
        serving.apply([DocumentChange(100, ("d1",), None)], 101)
        serving.swap(entries[2])
        assert reading.search(QUERIES[0]) == before and before.generation == entries[0].generation
        old = reading.generation
        assert old is not None and not old.closed
        assert entries[0].generation in world.copies().generations(), "it is held"
    assert not old.enter(), "it is closed, and nobody comes back to it"
    assert serving.status().draining == ()
    assert search(serving, QUERIES[0]).generation == entries[2].generation
    serving.close()


def test_an_older_one_needs_to_be_asked_for(world: World, entries: list[ArtifactEntry]) -> None:
    newer = world.build([document(at) for at in range(5)], watermark=200)
    serving = world.serving()
    serving.swap(entries[0])
    serving.apply([DocumentChange(150, ("d9",), {**document(9), "title": "between"})], 151)
    serving.swap(newer)
    assert serving.status().fresh_documents == 0, "the change is in the generation now, whatever became of it"
    with pytest.raises(Conflict) as refused:
        serving.swap(entries[0])
    assert refused.value.code == "artifact_older"
    trouble = serving.status().trouble
    assert trouble is not None and trouble.code == "artifact_older" and trouble.generation == entries[0].generation
    assert serving.status().generation == newer.generation
    serving.swap(entries[0], going_back=True)
    assert serving.status().trouble is None
    found = search(serving, SearchQuery("title:between", mode="text"))
    assert [(hit.key, hit.fresh) for hit in found.hits] == [(("d9",), True)], "what came after it is fresh again"
    serving.close()


def test_fresh_documents_that_begin_too_late(world: World, entries: list[ArtifactEntry]) -> None:
    serving = world.serving(fresh=FreshDocuments(world.searched, floor=150))
    with pytest.raises(Unavailable) as refused:
        search(serving, QUERIES[0])
    assert refused.value.code == "no_generation"
    with pytest.raises(FreshGap):
        serving.swap(entries[0])
    trouble = serving.status().trouble
    assert serving.status().generation is None and trouble is not None and trouble.code == "fresh_gap"


def test_what_only_a_rollback_needs_can_be_given_up(world: World, entries: list[ArtifactEntry]) -> None:
    serving = world.serving(fresh=FreshDocuments(searchable(), floor=50))
    serving.apply([DocumentChange(60, ("old",), {**document(1), "_id": "old"})], 80)
    serving.swap(entries[0])
    serving.apply([DocumentChange(120, ("fresh",), {**document(2), "_id": "fresh"})], 130)
    serving.forget_older()
    assert (serving.fresh.floor, serving.fresh.head, len(serving.fresh)) == (100, 130, 1)
    found = search(serving, SearchQuery("value", mode="vector", k=100))
    assert found.position == 130 and len(found.hits) == 31
    serving.close()


def test_the_check_after_the_swap_takes_it_back(
    world: World, entries: list[ArtifactEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    serving, usual, asked = world.serving(), Generation.check_canaries, list[str]()

    def check(generation: Generation) -> None:
        usual(generation)
        # Not while it is opened: it serves by now.
        if serving.status().generation == generation.name:
            asked.append(generation.name)
            if generation.name == entries[1].generation:
                raise FrazilError("no tea", code="no_tea")

    monkeypatch.setattr(Generation, "check_canaries", check)
    serving.swap(entries[0])
    with pytest.raises(FrazilError):
        serving.swap(entries[1])
    status = serving.status()
    assert status.generation == entries[0].generation and status.trouble is not None
    assert (status.trouble.code, status.trouble.generation) == ("no_tea", entries[1].generation)
    assert asked == [entries[0].generation, entries[1].generation] and status.draining == ()
    assert search(serving, QUERIES[0]).generation == entries[0].generation
    serving.close()


def test_a_generation_that_goes_wrong_while_it_serves(
    world: World, entries: list[ArtifactEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = world.serving()
    serving.swap(entries[0])
    serving.swap(entries[1])
    assert serving.check_canaries() is None
    with serving.reading() as reading:
        assert reading.generation is not None
        # As a bit that flips in memory would: another vector in its place.
        index = reading.generation.index
        assert index is not None
        index._vectors = index.vectors[::-1].copy()
    trouble = serving.check_canaries()
    assert trouble is not None and trouble.code == "artifact_canary" and trouble.generation == entries[1].generation
    assert serving.status().generation == entries[0].generation and serving.status().trouble == trouble
    assert search(serving, QUERIES[0]).generation == entries[0].generation
    serving.close()


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1 << at % 8
    path.chmod(0o600)
    path.write_bytes(content)


def test_damage_anywhere_on_the_bucket(tmp_path: Path) -> None:
    world = World(tmp_path)
    good = world.build([document(at) for at in range(20)], 100)
    other = world.build([document(at, salt=3) for at in range(20)], 100)
    serving = world.serving()
    serving.swap(good)
    expected = search(serving, QUERIES[0])
    bucket = tmp_path / "warehouse" / "_artifacts" / TABLE
    files = sorted(path for path in (bucket / other.generation).rglob("*") if path.is_file())
    assert {"index.json", "text.json", "meta.json", "vectors.npy"} <= {path.name for path in files}
    ours = {path.read_bytes() for path in (bucket / good.generation).rglob("*") if path.is_file()}
    choose = random.Random(5)
    refusals = 0
    for path in files:
        content = path.read_bytes()
        twin = bucket / good.generation / path.relative_to(bucket / other.generation)
        if content in ours:
            continue  # it is not fetched: the copy of the one that serves has the same
        for spoil in ("flip", "cut", "theirs"):
            if spoil == "flip" and content:
                flip(path, choose.randrange(8 * len(content)))
            elif spoil == "cut" and content:
                path.write_bytes(content[: choose.randrange(len(content))])
            elif spoil == "theirs" and twin.exists():
                path.write_bytes(twin.read_bytes())
            else:
                continue
            with pytest.raises(FrazilError) as refused:
                serving.swap(other)
            trouble = serving.status().trouble
            assert trouble is not None and trouble.code == refused.value.code and trouble.code.startswith("artifact_")
            assert search(serving, QUERIES[0]) == expected
            refusals += 1
            path.write_bytes(content)
    files[0].unlink()
    with pytest.raises(FrazilError):
        serving.swap(other)
    assert search(serving, QUERIES[0]) == expected and refusals > 20
    serving.close()


def test_other_engines(world: World, entries: list[ArtifactEntry]) -> None:
    for engine, version in (("tantivy", "99.0.0"), ("faiss", "1.0.0")):
        copies = world.copies(engines={**running_engines(), engine: version})
        serving = ServedGenerations(world.searched, copies)
        with pytest.raises(ArtifactRefused) as refused:
            serving.swap(entries[0])
        assert refused.value.code == "artifact_engine_version"


def test_an_artifact_of_another_model_or_text(world: World, entries: list[ArtifactEntry]) -> None:
    for searched, code in (
        (searchable(text=("title",)), "artifact_other_text"),
        (searchable(model=_Renamed()), "artifact_other_model"),
        (searchable(key=("number",)), "artifact_other_schema"),
    ):
        serving = ServedGenerations(searched, world.copies())
        with pytest.raises(ArtifactRefused) as refused:
            serving.swap(entries[0])
        assert refused.value.code == code
        assert world.copies().prune(()) != [], "the copy was released"


def test_what_its_builder_knew_is_asked_again(world: World, entries: list[ArtifactEntry], tmp_path: Path) -> None:
    """A copy whose files are whole but whose index answers otherwise."""
    copy = world.copies().fetch(entries[3])
    assert {canary.part for canary in copy.manifest.canaries} == {"index", "text"}
    generation = Generation(copy, world.searched)
    (part,) = (part for name, part in generation._parts.items() if name == "text")
    part.index._searcher = Generation(world.copies().fetch(entries[2]), world.searched).text._searcher  # type: ignore[attr-defined,union-attr]
    with pytest.raises(ArtifactRefused) as refused:
        generation.check_canaries()
    assert refused.value.code == "artifact_canary"
    generation.retire()


class _Renamed:
    name, version, dims = "another", "1", 256

    def embed(self, texts: Any) -> Any:
        raise AssertionError
