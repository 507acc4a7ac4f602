from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.lake.catalog import Lake, open_lake
from frazil.storage import Warehouse
from tests.serving.trials.place import TrialPlace


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialPlace]:
    """A table with some 1,500 vectors, for tests that only read it or look at runs of their own."""
    folder = tmp_path_factory.mktemp("trials")
    lake = open_lake(f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse"))
    place = TrialPlace(lake, folder / "scratch")
    place.fill(260)
    yield place
    lake.close()


@pytest.fixture
def own(lake: Lake, tmp_path: Path) -> TrialPlace:
    """A table of one test's own, with a few vectors."""
    place = TrialPlace(lake, tmp_path / "scratch")
    place.fill(30)
    return place


def trial(**changed: Any) -> dict[str, Any]:
    """A row of the journal, as far as rules and charts look at it."""
    return {
        "run": "r1",
        "purpose": "index",
        "state": "ok",
        "shelf": "main.notes",
        "model": "wordllama",
        "version": "1",
        "dims": 256,
        "vectors": 1000,
        "of_vectors": 1000,
        "k": 10,
        "machine": "{}",
        **changed,
    }
