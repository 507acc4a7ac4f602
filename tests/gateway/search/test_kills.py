"""A server killed at any step of opening, swapping or going back: the next one serves what the register says."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from frazil.bus import open_bus
from frazil.bus.memory import MemoryBus
from frazil.client import Client
from frazil.gateway.search import shelf_reader
from frazil.lake.catalog import Lake, open_lake
from frazil.serving.artifacts import ArtifactEntry, Shelf
from frazil.serving.artifacts.register import Policy
from frazil.serving.search import SearchQuery
from frazil.storage import Warehouse
from tests.contract.servers import running_nats
from tests.flow.product import Parts, eventually, nats_access, new_folder
from tests.flow.product import running as running_parts
from tests.gateway.search.place import BY_CLOCK, NOTES, SHELF, Half, Place, until
from tests.kills import Address, address, is_killed_at
from tests.serving.search.world import search

_POINT = re.compile(r"crash_point\(\"(\w+)\"\)")
# What is over is old at once, readers are forgotten at once, and two are kept.
AGED = Policy(keep=2, grace_seconds=-60, silent_seconds=-60, lease_seconds=-1)
OF_CANARIES = ("served_canary_failed", "served_withdrawn")
ASK = SearchQuery("parse a date", mode="vector", k=3)


def _points(*modules: str) -> list[str]:
    files = [Path(str(sys.modules[name].__file__)) for name in modules]
    return [point for file in files for point in _POINT.findall(file.read_text())]


_STEPS = _points(
    shelf_reader.__name__,
    "frazil.serving.search.generation_swap",
    "frazil.serving.artifacts.local_copies",
    "frazil.storage.folder_lock",
)
# Where a server comes at its start too, the second time is a swap.
POINTS = [
    f"{name}:2" if name.startswith(("swap_", "served_taken", "served_said")) else name
    for name in _STEPS
    if name not in OF_CANARIES
]


def test_all_steps_are_here() -> None:
    assert len(POINTS) >= 13 and set(OF_CANARIES) < set(_STEPS)


@dataclass
class Story:
    """One shelf and one server's disk for all kills: each finds what the one before left."""

    folder: Path
    place: Place
    year: int = 0
    entries: list[ArtifactEntry] = field(default_factory=list)

    def build(self) -> ArtifactEntry:
        self.year += 1
        entry = self.place.of_year(self.year, count=3, watermark=100 + self.year)
        self.entries.append(entry)
        return entry

    def year_of(self, generation: str) -> int:
        return 1 + [entry.generation for entry in self.entries].index(generation)

    @property
    def where(self) -> Address:
        return address(self.place.lake)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("kills")
    lake: Lake = open_lake(f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse"))
    place = Place(folder, lake, MemoryBus())
    asyncio.run(place.declare())
    made = Story(folder, place)
    place.shelf().promote(made.build().generation)
    yield made
    lake.close()


def swaps(where: Address, folder: Path, generations: list[str]) -> None:
    """What a server does: it serves what is current, and then each that is promoted."""
    asyncio.run(_swaps(where, folder, generations))


async def _swaps(where: Address, folder: Path, generations: list[str]) -> None:
    place = Place(folder, where.open(), MemoryBus())
    async with place.serving(BY_CLOCK, reader=f"r{os.getpid()}", cache="disk") as half:
        await _settled(half, place.shelf())
        for generation in generations:
            place.shelf().promote(generation)
            await _settled(half, place.shelf())


async def _settled(half: Half, shelf: Shelf) -> str:
    """Until the current one is served, and that is said."""
    current = shelf.register().current
    assert current is not None
    await half.serves(current)
    await until(lambda: current.generation in {lease.serving for lease in shelf.leases()}, "a lease")
    return current.generation


def fails(where: Address, folder: Path, generation: str) -> None:
    """A server whose generation goes wrong in memory."""
    asyncio.run(_fails(where, folder, generation))


async def _fails(where: Address, folder: Path, generation: str) -> None:
    place = Place(folder, where.open(), MemoryBus())
    pace = replace(BY_CLOCK, canary_seconds=0.1)
    async with place.serving(pace, reader=f"r{os.getpid()}", cache="disk") as half:
        await _settled(half, place.shelf())
        with (await half.of()).reading() as reading:
            assert reading.generation is not None and reading.generation.index is not None
            index = reading.generation.index
            index._vectors = index.vectors[::-1].copy()
        await until(lambda: _went_back(place, generation), "it went back")


def _went_back(place: Place, generation: str) -> bool:
    current = place.shelf().register().current
    return current is not None and current.generation != generation


async def goes_on(story: Story) -> str:
    """The next server on the same disk, and the clean-up: everything comes to rest, and what is current is whole."""
    place = replace(story.place, bus=MemoryBus())
    shelf = place.shelf()
    async with place.serving(BY_CLOCK, reader=f"next{story.year}", cache="disk") as half:
        current = await _settled(half, shelf)
        found = search(await half.of(), ASK)
        assert found.generation == current
        assert {hit.row["year"] for hit in found.hits} == {story.year_of(current)}
        assert half.told()["state"] == "ok"
        cleaner = place.shelf()
        cleaner.policy = AGED
        await asyncio.to_thread(cleaner.tidy)
        again = await asyncio.to_thread(cleaner.tidy)
        assert again.removed == again.orphans == ()
        register = shelf.register()
        assert register.current is not None and register.current.generation == current
        kept = {entry.generation for entry in register.entries}
        assert {path.name for path in (place.bucket / SHELF).iterdir()} == kept
        # One more swap leaves on this disk what serves and what served before, and nothing of the dead.
        last = await asyncio.to_thread(story.build)
        await place.promote(last, say=False)
        await _settled(half, shelf)
        disk = story.folder / "cache-disk" / SHELF
        await until(lambda: {path.name for path in disk.iterdir()} == {current, last.generation}, "only these are left")
    for entry in (register.current, last):
        told = await asyncio.to_thread(_whole, place, entry)
        assert told == entry.generation
    return current


def _whole(place: Place, entry: ArtifactEntry) -> str:
    from frazil.serving.artifacts import LocalCopies

    copy = LocalCopies(place.folder / "another", place.shelf().objects, SHELF).fetch(entry)
    copy.release()
    return copy.manifest.generation


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_of_the_server_at(story: Story, point: str) -> None:
    before = story.place.shelf().register().current
    assert before is not None
    new = [story.build().generation for _ in range(2)]
    assert is_killed_at(point, swaps, story.where, story.folder, new), f"it never came to {point}"
    register = story.place.shelf().register()
    assert register.current is not None and register.current.generation in {before.generation, *new}
    assert asyncio.run(goes_on(story)) == register.current.generation


@pytest.mark.parametrize("point", OF_CANARIES)
def test_a_kill_while_it_goes_back_at(story: Story, point: str) -> None:
    new = story.build()
    previous = story.place.shelf().register().current
    assert previous is not None
    story.place.shelf().promote(new.generation)
    assert is_killed_at(point, fails, story.where, story.folder, new.generation)
    # The damage went with the process; the register went back only if it had come that far.
    expected = previous if point == "served_withdrawn" else new
    assert asyncio.run(goes_on(story)) == expected.generation


@pytest.mark.soak
@pytest.mark.slow
def test_a_gateway_process_killed_amid_a_swap_serves_the_current_one_after_its_start() -> None:
    """`frazil serve gateway` itself, over a real bus, asked over HTTP."""
    with new_folder("served") as folder, running_nats() as server:
        product = Parts(folder / "data", nats_access(server))
        with running_parts(product):
            gateway = product.gateway()
            assert product.ask("POST", "/v1/tables", NOTES).status_code == 201
            lake = open_lake(f"sqlite:///{product.data}/catalog.db", Warehouse(f"file://{product.data}/warehouse"))

            async def promoted(year: int) -> str:
                bus = await open_bus(server.url, credentials=server.credentials, max_bytes=1 << 20)
                place = Place(folder, lake, bus)
                entry = await asyncio.to_thread(place.of_year, year, watermark=100 + year)
                await place.promote(entry)
                await bus.close()
                return entry.generation

            def serves(generation: str) -> bool:
                shelves: list[dict[str, Any]] = product.status().get("search") or []
                return [one["generation"] for one in shelves] == [generation]

            year = 1
            first = asyncio.run(promoted(year))
            eventually(lambda: serves(first), what="the first is served")
            for point in ("swap_rebound", "served_swapped"):
                product.end(gateway)
                # At its start it opens what is current; the second time is the swap.
                nth = 1 if point == "served_swapped" else 2
                gateway = product.gateway(FRAZIL_CRASH_AT=f"{point}:{nth}")
                eventually(lambda generation=first: serves(generation), what="it serves again")  # type: ignore[misc]
                year += 1
                first = asyncio.run(promoted(year))
                gateway.wait(60)
                assert (product.trace / point).exists()
                gateway = product.gateway()
                eventually(lambda generation=first: serves(generation), what="the current one")  # type: ignore[misc]
                assert product.health()["parts"]["search"]["status"] == "ok"
            with Client(product.url, product.token) as client:
                (reader,) = {one["reader"] for one in client.artifacts("notes")["readers"] if one["serving"] == first}
                back = client.rollback_artifact("notes", reason="no more", wait_s=60)
                assert back["previous"] == first and reader in back["served_by"]
            eventually(lambda: serves(back["generation"]), what="the one before")
            lake.close()
