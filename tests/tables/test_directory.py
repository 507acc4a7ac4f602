"""Looking at the catalog: what another process did before one asks is seen, and those who ask at once share a look."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.errors import Unavailable
from frazil.lake.catalog import Lake, open_lake
from frazil.storage import Warehouse
from frazil.tables import TableDirectory
from tests.lake_fixtures import some_table


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[tuple[Lake, Lake]]:
    """The same catalog in two processes."""
    opened = [
        open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse")) for _ in range(2)
    ]
    yield opened[0], opened[1]
    for lake in opened:
        lake.close()


@pytest.fixture(params=["with a pulse", "without"])
async def directory(
    lakes: tuple[Lake, Lake], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> TableDirectory:
    if request.param == "without":
        monkeypatch.setattr(lakes[0].pulse, "beat", lambda: None)
    return TableDirectory(lakes[0])


def make(lake: Lake, name: str) -> None:
    lake.create(some_table(name=name), stream="a_stream", identity="an-identity")


class Looks:
    """Counts the looks, and holds them up."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.may_end = threading.Event()
        look = lake.locations

        def counted() -> dict[str, str]:
            self.count += 1
            found = look()
            self.may_end.wait(120)
            return found

        monkeypatch.setattr(lake, "locations", counted)

    async def begun(self, count: int) -> None:
        async with asyncio.timeout(120):
            while self.count < count:
                await asyncio.sleep(0.001)


async def test_what_was_done_before_one_asks_is_seen(directory: TableDirectory, lakes: tuple[Lake, Lake]) -> None:
    for number in range(20):
        make(lakes[1], f"t{number}")
        await directory.refresh()
        assert len(directory.tables()) == number + 1
    lakes[1].drop("main.t0")
    await directory.refresh()
    assert len(directory.tables()) == 19


async def test_those_who_ask_while_one_looks_share_the_next_look(
    directory: TableDirectory, lakes: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(lakes[0], monkeypatch)
    make(lakes[1], "a")
    first = asyncio.create_task(directory.refresh())
    await looks.begun(1)
    make(lakes[1], "b")  # after the first look saw what there was
    others = [asyncio.create_task(directory.refresh()) for _ in range(30)]
    await asyncio.sleep(0.02)
    others[3].cancel()  # one that gives up keeps no other from seeing
    looks.may_end.set()
    await first
    await asyncio.gather(*others, return_exceptions=True)
    assert [one.cancelled() for one in others] == [number == 3 for number in range(30)]
    assert looks.count == 2
    assert [table.spec.short_name for table in directory.tables()] == ["a", "b"]


async def test_a_look_that_fails_is_told_to_all_who_share_it_and_is_tried_again(
    directory: TableDirectory, lakes: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> dict[str, str]:
        raise Unavailable("the catalog is away", code="lake_unavailable")

    make(lakes[1], "a")
    with monkeypatch.context() as broken:
        broken.setattr(lakes[0], "locations", away)
        told = await asyncio.gather(*(directory.refresh() for _ in range(5)), return_exceptions=True)
        assert all(isinstance(error, Unavailable) for error in told)
        assert directory.unreachable is told[0]
    await directory.refresh()
    assert directory.unreachable is None
    assert len(directory.tables()) == 1


async def test_the_follower_outlives_whatever_is_raised_and_who_leaves(
    directory: TableDirectory, lakes: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    await directory.start()
    locations, failures = lakes[0].locations, list[int]()

    def broken() -> dict[str, str]:
        failures.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr(lakes[0], "locations", broken)
    make(lakes[1], "first")
    async with asyncio.timeout(20):
        while len(failures) < 2:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(lakes[0], "locations", locations)
        make(lakes[1], "second")
        while len(directory.tables()) < 2:
            await asyncio.sleep(0.01)
    # Those who wait for a state of a table and leave are not counted any longer.
    waits = [asyncio.create_task(directory.until("main.first", lambda _: False, timeout_seconds=60)) for _ in range(5)]
    for wait in waits:
        await asyncio.sleep(0.01)
        wait.cancel()
    await asyncio.wait(waits)
    assert directory._waiting == 0
    await directory.close()


async def test_a_catalog_that_did_not_change_is_not_looked_at(
    lakes: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = TableDirectory(lakes[0])
    make(lakes[1], "a")
    await directory.refresh()
    looks = Looks(lakes[0], monkeypatch)
    looks.may_end.set()
    for _ in range(10):
        await asyncio.gather(*(directory.refresh() for _ in range(5)))
        await asyncio.sleep(0)
    assert looks.count == 0
    make(lakes[1], "b")
    await directory.refresh()
    assert looks.count == 1
    assert len(directory.tables()) == 2
