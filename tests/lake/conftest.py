"""Each test of the lake runs on both catalogs, each time in a catalog of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frazil.lake.catalog import Lake, open_lake
from frazil.storage import Warehouse
from tests.contract.servers import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Lake]:
    """Opens the lake of this test, as each process of the product does for itself."""
    warehouse = Warehouse(f"file://{tmp_path}/warehouse")
    if request.param == "sqlite":
        return lambda: open_lake(f"sqlite:///{tmp_path}/catalog.db", warehouse)
    server: PostgresServer = request.getfixturevalue("catalog_postgres")
    name = f"lake{next(_numbers)}"
    return lambda: open_lake(server.url, warehouse, name=name, **server.credentials)


@pytest.fixture
def lake(open_again: Callable[[], Lake]) -> Iterator[Lake]:
    opened = open_again()
    yield opened
    opened.close()
