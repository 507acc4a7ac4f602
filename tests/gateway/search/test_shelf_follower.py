"""Gateways follow the register: by word, by the clock when the word is lost, back as well as forth."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.bus import EventBus
from frazil.bus.memory import MemoryBus
from frazil.embedding import ModelSettings
from frazil.errors import FrazilError
from frazil.lake.catalog import Lake
from frazil.serving.artifacts import ArtifactEntry, ArtifactState
from frazil.serving.artifacts.announcements import STREAM
from frazil.serving.artifacts.register import Policy
from frazil.serving.search import DocumentChange, SearchQuery, SearchResult, ServedGenerations
from tests.gateway.search.place import (
    BY_CLOCK,
    BY_WORD,
    SHELF,
    Place,
    moved_away,
    other_engine,
    until,
    wrong_canaries,
)
from tests.serving.search.world import document, search

QUERIES = (
    SearchQuery("parse a date from a string", mode="vector", k=20, snippet_characters=0),
    SearchQuery("the return value of a function", mode="text", k=20),
    SearchQuery("threads that wait for a lock", mode="hybrid", k=20),
)
SWAPS = 300
CLIENTS = 4


def _model(serving: ServedGenerations) -> str | None:
    return None if serving.searchable.model is None else serving.searchable.model.name


def told(found: SearchResult) -> list[tuple[Any, ...]]:
    return [(hit.key, hit.score, hit.row["body"], hit.row["year"]) for hit in found.hits]


async def test_every_replica_hears_for_itself(lake: Lake, nats_bus: EventBus, tmp_path: Path) -> None:
    """Over a real bus, and with no look at the registers but for what was said."""
    place = Place(tmp_path, lake, nats_bus)
    await place.declare()
    entries = [await asyncio.to_thread(place.of_year, year, watermark=100 + year) for year in range(3)]
    await place.promote(entries[0])
    async with place.serving(reader="one") as one, place.serving(reader="two") as two:
        for half in (one, two):
            await half.serves(entries[0])
        for entry in entries[1:]:
            await place.promote(entry)
            for half in (one, two):
                await half.serves(entry)
        await place.rollback()
        for half in (one, two):
            await half.serves(entries[1])
            assert half.told()["state"] == "ok"
        await until(
            lambda: {lease.serving for lease in place.shelf().leases()} == {entries[1].generation}, "leases say so"
        )
        assert {lease.reader for lease in place.shelf().leases()} == {"one", "two"}
        await until(lambda: len(place.journal("artifact_served")) == 8, "every move is in the journal")
    moves = [(entry["reader"], entry["generation"]) for entry in place.journal("artifact_served")]
    assert len(moves) == 8 and moves.count(("two", entries[1].generation)) == 2


async def test_what_lingers_is_closed_also_when_it_ends_while_leases_are_renewed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place.of_year(1)
    await place.promote(first)
    renewing, may_end = threading.Event(), threading.Event()
    async with place.serving(replace(BY_WORD, renew_seconds=0.02)) as half:
        await half.serves(first)
        (shelf,) = half.tables.readers()
        await half.tables._forget(SHELF)

        def slow() -> None:
            renewing.set()
            may_end.wait(20)

        monkeypatch.setattr(shelf, "renew", slow)
        await asyncio.to_thread(renewing.wait, 20)
        asyncio.get_running_loop().call_later(0.1, may_end.set)
    assert shelf.is_over


async def test_a_lost_word_costs_a_look(place: Place) -> None:
    first, second = place.of_year(1), place.of_year(2, watermark=101)
    await place.promote(first, say=False)
    async with place.serving(BY_CLOCK) as half:
        await half.serves(first)
        await place.promote(second, say=False)
        await half.serves(second)


async def test_a_stream_of_words_that_was_lost_is_found_again(place: Place) -> None:
    entries = [place.of_year(year, watermark=100 + year) for year in range(3)]
    assert isinstance(place.bus, MemoryBus)
    async with place.serving(replace(BY_WORD, look_seconds=1.0)) as half:
        await place.promote(entries[0])
        await half.serves(entries[0])
        await place.bus.delete(STREAM)
        await place.promote(entries[1])
        await half.serves(entries[1])
        await place.bus.replace(STREAM)
        await place.promote(entries[2])
        await half.serves(entries[2])


@contextlib.contextmanager
def restless() -> Iterator[None]:
    """Threads change places ten times as often: more orders are tried."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 10)
    yield
    sys.setswitchinterval(usual)


async def test_three_hundred_swaps_by_word_under_load(place: Place) -> None:
    """Every answer is that of one generation, and there is no error; two replicas follow all the way."""
    entries = [await asyncio.to_thread(place.of_year, year) for year in range(3)]
    await place.promote(entries[0])
    over = threading.Event()
    wrong: list[Any] = []
    seen: list[str | None] = []
    async with place.serving(reader="one") as one, place.serving(reader="two") as two:
        halves = (one, two)
        expected: dict[tuple[str | None, int], list[tuple[Any, ...]]] = {}
        for entry in entries:
            await place.promote(entry, going_back=True)
            for half in halves:
                await half.serves(entry)
            serving = await one.of()
            expected |= {(entry.generation, number): told(search(serving, ask)) for number, ask in enumerate(QUERIES)}
        assert len({str(answer) for answer in expected.values()}) == len(expected), "each answer tells its generation"
        servings = [(await half.of()) for half in halves]

        def client(seed: int) -> None:
            choose = random.Random(seed)
            while not over.wait(0.01):
                number = choose.randrange(len(QUERIES))
                try:
                    found = search(servings[seed % 2], QUERIES[number])
                except BaseException as error:
                    wrong.append(error)
                    return
                seen.append(found.generation)
                if told(found) != expected.get((found.generation, number)):
                    wrong.append((number, found))

        clients = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
        with restless():
            for thread in clients:
                thread.start()
            try:
                for number in itertools.count():
                    enough = len(seen) > SWAPS and len(set(seen)) == len(entries)
                    if number >= SWAPS // 2 and enough:  # each of them is on both
                        break
                    assert number < 20 * SWAPS, "searches do not come to an end"
                    entry = entries[number % 2 if number % 25 else 2]
                    await place.promote(entry, going_back=True)
                    for half in halves:
                        await half.serves(entry)
            finally:
                over.set()
                for thread in clients:
                    await asyncio.to_thread(thread.join, 120)
        swaps = sum(half.told()["swaps"] for half in halves)
        assert [(await half.of()) for half in halves] == servings, "the same serving all the way"
        for half in halves:
            await until(lambda half=half: half.told()["draining"] == [], "all have left")  # type: ignore[misc]
            assert half.told()["trouble"] is None
    assert not wrong, wrong[:3]
    assert swaps >= SWAPS and set(seen) == {entry.generation for entry in entries}


def _rewritten(path: Path, content: bytes) -> Callable[[], object]:
    before = path.read_bytes()
    path.write_bytes(content)
    return lambda: path.write_bytes(before)


def _folder(place: Place, entry: ArtifactEntry) -> Path:
    return place.bucket / SHELF / entry.generation


def _flipped(place: Place, entry: ArtifactEntry, other: ArtifactEntry) -> Callable[[], object]:
    path = _folder(place, entry) / "vectors.npy"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    return _rewritten(path, bytes(content))


def _cut(place: Place, entry: ArtifactEntry, other: ArtifactEntry) -> Callable[[], object]:
    path = _folder(place, entry) / "rows.arrow"
    return _rewritten(path, path.read_bytes()[:-100])


def _theirs(place: Place, entry: ArtifactEntry, other: ArtifactEntry) -> Callable[[], object]:
    theirs = (_folder(place, other) / "rows.arrow").read_bytes()
    return _rewritten(_folder(place, entry) / "rows.arrow", theirs)


def _their_manifest(place: Place, entry: ArtifactEntry, other: ArtifactEntry) -> Callable[[], object]:
    theirs = (_folder(place, other) / "manifest.json").read_bytes()
    return _rewritten(_folder(place, entry) / "manifest.json", theirs)


def _missing(place: Place, entry: ArtifactEntry, other: ArtifactEntry) -> Callable[[], object]:
    path = _folder(place, entry) / "chunks.arrow"
    away = path.rename(path.with_suffix(".away"))
    return lambda: away.rename(path)


def _gone(place: Place, entry: ArtifactEntry, other: ArtifactEntry) -> Callable[[], object]:
    """The whole bucket, for a while."""
    away = place.bucket.rename(place.bucket.with_name("away"))
    return lambda: away.rename(place.bucket)


@pytest.mark.parametrize("spoil", [_flipped, _cut, _theirs, _their_manifest, _missing, _gone])
async def test_damage_is_not_served_and_when_it_is_mended_it_is(
    place: Place, spoil: Callable[[Place, ArtifactEntry, ArtifactEntry], Callable[[], object]]
) -> None:
    good, bad = place.of_year(1), place.of_year(2, watermark=101)
    await place.promote(good)
    async with place.serving() as half:
        await half.serves(good)
        serving = await half.of()
        expected = search(serving, QUERIES[0])
        mend = spoil(place, bad, good)
        await place.promote(bad)
        trouble = (await half.until(state="degraded"))["trouble"]
        assert trouble["generation"] == bad.generation and trouble["reason"] and trouble["since"]
        assert trouble["code"].startswith("artifact_") or spoil in (_missing, _gone), trouble
        assert search(serving, QUERIES[0]) == expected
        register = place.shelf().register()
        assert register.current == replace(register.named(bad.generation), state=ArtifactState.CURRENT), (
            "a person decides"
        )
        mend()
        await half.serves(bad)
        assert (await half.until(state="ok"))["trouble"] is None
        assert {hit.row["year"] for hit in search(serving, QUERIES[0]).hits} == {2}
    (entry,) = place.journal("artifact_refused")
    assert (entry["generation"], entry["code"]) == (bad.generation, trouble["code"]), "told once, not at each try"


async def test_an_artifact_of_other_engines(place: Place) -> None:
    good, bad = place.of_year(1), place.of_year(2, watermark=101)
    async with place.serving() as half:
        await place.promote(good)
        await half.serves(good)
        with pytest.MonkeyPatch.context() as patched:
            engines = {"pyarrow": "99", "faiss": "1", "tantivy": "0"}
            patched.setattr(sys.modules["frazil.serving.artifacts.verify"], "running_engines", lambda: engines)
            await place.promote(bad)
            trouble = (await half.until(state="degraded"))["trouble"]
            assert trouble["code"] == "artifact_engine_version"
            assert half.told()["generation"] == good.generation
        await half.serves(bad)
    with pytest.raises(FrazilError):
        place.of_year(3, watermark=102, spoil=other_engine)


async def test_a_failed_canary_rolls_back_everywhere(place: Place) -> None:
    good = place.of_year(1)
    bad = place.of_year(2, watermark=101, spoil=wrong_canaries)
    await place.promote(good)
    async with place.serving(reader="one") as one, place.serving(reader="two") as two:
        for half in (one, two):
            await half.serves(good)
        await place.promote(bad)
        register = await until(lambda: _current(place, good), "the register went back")
        assert register.named(bad.generation).withdrawn
        for half in (one, two):
            await half.until(state="ok", generation=good.generation)
        with pytest.raises(FrazilError) as refused:
            await place.promote(bad)
        assert refused.value.code == "artifact_withdrawn"
    entries = place.journal("artifact_rolled_back")
    assert entries and {(one["generation"], one["to"]) for one in entries} == {(bad.generation, good.generation)}


async def test_a_generation_that_goes_wrong_in_memory(place: Place) -> None:
    good, bad = place.of_year(1), place.of_year(2, watermark=101)
    pace = replace(BY_WORD, canary_seconds=0.2)
    await place.promote(good)
    async with place.serving(pace, reader="one") as one, place.serving(reader="two") as two:
        for half in (one, two):
            await half.serves(good)
        await place.promote(bad)
        for half in (one, two):
            await half.serves(bad)
        with (await one.of()).reading() as reading:
            assert reading.generation is not None and reading.generation.index is not None
            index = reading.generation.index
            index._vectors = index.vectors[::-1].copy()
        await until(lambda: _current(place, good), "the register went back")
        for half in (one, two):
            await half.until(state="ok", generation=good.generation)


async def test_a_failing_generation_without_another_is_told_until_there_is_one(place: Place) -> None:
    only = place.of_year(1)
    await place.promote(only)
    async with place.serving(replace(BY_CLOCK, canary_seconds=0.1)) as half:
        await half.serves(only)
        with (await half.of()).reading() as reading:
            assert reading.generation is not None and reading.generation.index is not None
            index = reading.generation.index
            index._vectors = index.vectors[::-1].copy()
        await half.until(state="degraded")
        await asyncio.sleep(0.5)
        assert half.told()["trouble"]["code"] == "artifact_canary"
        newer = await place.promote(place.of_year(2, watermark=101))
        await half.until(state="ok", generation=newer.generation)


def _current(place: Place, entry: ArtifactEntry) -> Any:
    register = place.shelf().register()
    return register if register.current and register.current.generation == entry.generation else None


async def test_back_beyond_what_is_kept_fresh(place: Place) -> None:
    """Four generations back: changes in between are no longer here, so it is a serving of its own."""
    entries = [place.of_year(year, watermark=100 * year) for year in range(1, 5)]
    async with place.serving() as half:
        for entry in entries:
            await place.promote(entry)
            await half.serves(entry)
        before = await half.of()
        before.apply([DocumentChange(450, ("x",), {**document(1), "_id": "x", "year": 9})], 451)
        await place.promote(entries[0], going_back=True)
        await half.serves(entries[0])
        served = await half.of()
        assert served is not before and half.told()["state"] == "ok"
        assert {hit.row["year"] for hit in search(served, QUERIES[0]).hits} == {1}
        assert {hit.row["year"] for hit in search(before, QUERIES[0]).hits} == {4, 9}, "who had it finishes"


async def test_an_older_one_is_not_taken_unless_it_was_chosen(place: Place) -> None:
    old, new = place.of_year(1), place.of_year(2, watermark=101)
    await place.promote(old)
    async with place.serving() as half:
        await half.serves(old)
        await place.promote(new)
        await half.serves(new)
        with pytest.raises(FrazilError) as refused:
            await place.promote(old)
        assert refused.value.code == "artifact_older" and "--back" in refused.value.hint
        assert half.told()["generation"] == new.generation
        await place.promote(old, going_back=True)
        await half.serves(old)
        assert half.told()["state"] == "ok"


async def test_a_model_takes_the_place_of_another(place: Place) -> None:
    """Searches go on all the while, each with one model and its vectors."""
    place.models["second"] = ModelSettings(provider="wordllama")
    first = place.of_year(1)
    await place.promote(first)
    async with place.serving(BY_CLOCK) as half:
        await half.serves(first)
        before = await half.of()
        wrong: list[Any] = []
        models: set[tuple[str | None, str | None]] = set()
        over = asyncio.Event()

        async def client() -> None:
            table = await half.directory.table(SHELF)
            while not over.is_set():
                served = await half.tables.of(table)
                await asyncio.sleep(0.005)
                try:
                    found = await asyncio.to_thread(search, served, QUERIES[0])
                    models.add((_model(served), found.generation))
                except FrazilError as error:
                    wrong.append(error)

        clients = [asyncio.create_task(client()) for _ in range(4)]
        second = place.of_year(2, watermark=101)
        renamed = await asyncio.to_thread(_of_model, place, "second")
        for entry in (second, renamed):
            await until(lambda: models, "a search with the first model")
            await place.promote(entry)
            await half.serves(entry)
        await until(lambda: ("second", renamed.generation) in models, "a search with the second model")
        over.set()
        await asyncio.gather(*clients)
        served = await half.of()
        assert served is not before and _model(served) == "second"
        await until(lambda: before._view is None, "the old one is closed")
    assert not wrong, wrong[:3]
    assert {model for model, _ in models} == {"wordllama", "second"}
    assert ("second", first.generation) not in models and ("wordllama", renamed.generation) not in models


def _of_model(place: Place, model: str) -> ArtifactEntry:
    """An artifact of a model that the settings call so."""
    from frazil.embedding import open_model
    from frazil.embedding.model_spec import find_model_spec

    opened = open_model(find_model_spec(model, place.models))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tests.gateway.search.place.open_model", lambda name: opened)
        return place.of_year(3, watermark=102, model=model)


@contextlib.asynccontextmanager
async def locked_catalog(folder: Path) -> AsyncIterator[None]:
    """Nobody can read or write the catalog, as while another program keeps it."""
    connection = sqlite3.connect(folder / "catalog.db", isolation_level=None, check_same_thread=False, timeout=30)
    await asyncio.to_thread(connection.execute, "BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def test_without_the_catalog_what_serves_goes_on(place: Place) -> None:
    first, second = place.of_year(1), place.of_year(2, watermark=101)
    await place.promote(first)
    async with place.serving(BY_CLOCK) as half:
        await half.serves(first)
        serving = await half.of()
        async with locked_catalog(place.folder):
            for _ in range(10):
                assert search(serving, QUERIES[0]).generation == first.generation
                await asyncio.sleep(0.05)
        await place.promote(second)
        await half.serves(second)
        assert half.told()["state"] == "ok"


async def test_what_is_held_is_said_again(place: Place) -> None:
    entry = place.of_year(1)
    await place.promote(entry)
    async with place.serving(BY_CLOCK) as half:
        await half.serves(entry)
        (first,) = await until(lambda: place.shelf().leases(), "a lease")
        await until(lambda: place.shelf().leases()[0].at > first.at, "a newer lease")
        assert place.shelf().leases()[0].generations == (entry.generation,)
        # What is held is not removed, be it as old and as unwanted as can be.
        for year in (2, 3, 4):
            await place.promote(place.of_year(year, watermark=100 + year))
        newest = place.shelf().register().current or entry
        await half.serves(newest)
        await until(lambda: place.shelf().leases()[0].generations == (newest.generation,), "a lease of that alone")
        policy = Policy(keep=2, grace_seconds=-60, silent_seconds=3600, lease_seconds=60)
        shelf = place.shelf()
        shelf.policy = policy
        tidied = await asyncio.to_thread(shelf.tidy)
        assert len(tidied.removed) == 2
        current = shelf.register().current
        assert current is not None and half.told()["generation"] == current.generation
        assert search(await half.of(), QUERIES[0]).generation == current.generation


async def test_what_was_cleared_is_served_no_more(place: Place) -> None:
    entry = place.of_year(1)
    await place.promote(entry)
    async with place.serving(BY_CLOCK) as half:
        await half.serves(entry)
        await asyncio.to_thread(place.shelf().clear)
        await half.until(state="no_artifact", generation=None)
        await until(lambda: place.shelf().leases() == [], "nothing is held")


async def test_both_wait_while_one_is_opened(place: Place) -> None:
    """Many first searches take one thread, not one each."""
    await place.promote(place.of_year(1), say=False)
    async with place.serving() as half:
        table = await half.directory.table(SHELF)
        found = await asyncio.gather(*(half.tables.of(table) for _ in range(200)))
        assert len({id(served) for served in found}) == 1
        assert half.told()["swaps"] == 1
        with moved_away(place.bucket):
            assert half.told()["state"] == "ok"


async def test_the_bus_away_is_no_reason_to_stop(place: Place) -> None:
    entries = [place.of_year(year, watermark=100 + year) for year in range(2)]
    await place.promote(entries[0], say=False)
    async with place.serving(BY_CLOCK) as half:
        await half.serves(entries[0])
        half.tables._follower._bus = _Away()  # type: ignore[assignment]
        half.tables._follower._listener = None
        await place.promote(entries[1], say=False)
        await half.serves(entries[1])


class _Away:
    async def open(self, name: str) -> Any:
        from frazil.errors import Unavailable

        raise Unavailable("no bus")


async def test_a_bus_that_breaks_in_a_way_nobody_foresaw(place: Place) -> None:
    entries = [place.of_year(year, watermark=100 + year) for year in range(2)]
    await place.promote(entries[0], say=False)
    async with place.serving(BY_CLOCK) as half:
        await half.serves(entries[0])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("frazil.serving.artifacts.announcements.AnnouncementReader.next", None)
            await place.promote(entries[1], say=False)
            await half.serves(entries[1])
