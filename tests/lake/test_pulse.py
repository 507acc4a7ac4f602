"""The pulse of a catalog changes with everything that another process commits, and with nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.lake.catalog import Lake, open_lake
from frazil.storage import Warehouse
from tests.lake_fixtures import some_table


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def opened(file: Path) -> Callable[[], Lake]:
    return lambda: open_lake(f"sqlite:///{file}", Warehouse(f"file://{file.parent}/warehouse"))


def make(lake: Lake, name: str) -> None:
    lake.create(some_table(name=name), stream="a_stream", identity="an-identity")


def test_it_tells_of_every_commit_and_of_nothing_else(opened: Callable[[], Lake]) -> None:
    lake, other = opened(), opened()
    beats = [lake.pulse.beat()]
    for number in range(5):
        make(other if number % 2 else lake, f"t{number}")
        beats.append(lake.pulse.beat())
        other.locations()
        assert lake.pulse.beat() == beats[-1], "reading is no change"
    assert None not in beats
    assert len({*beats}) == len(beats)
    lake.close()
    other.close()


def test_it_keeps_nobody_from_writing_and_no_log_from_being_emptied(opened: Callable[[], Lake], file: Path) -> None:
    lake = opened()
    make(lake, "a")
    assert lake.pulse.beat() is not None
    writer = sqlite3.connect(file, timeout=0)
    make(lake, "b")
    assert lake.pulse.beat() is not None
    assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    writer.close()
    lake.close()


def test_a_writer_in_the_middle_of_it_changes_nothing_yet(opened: Callable[[], Lake], file: Path) -> None:
    lake = opened()
    make(lake, "a")
    before = lake.pulse.beat()
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE iceberg_tables SET metadata_location = metadata_location || '?'")
    assert lake.pulse.beat() == before
    writer.execute("COMMIT")
    assert lake.pulse.beat() not in (before, None)
    writer.close()
    lake.close()


def test_another_file_in_its_place_is_another_catalog(opened: Callable[[], Lake], file: Path) -> None:
    lake = opened()
    make(lake, "a")
    before = lake.pulse.beat()
    for part in file.parent.glob("catalog.db*"):
        part.unlink()
    assert lake.pulse.beat() is None, "who wants to know must look, and is told"
    again = opened()
    assert lake.pulse.beat() not in (before, None)
    again.close()
    lake.close()


def test_only_a_look_tells_of_other_databases(lake: Lake) -> None:
    beat = lake.pulse.beat()
    assert (beat is None) == (lake.catalog.engine.dialect.name != "sqlite")
