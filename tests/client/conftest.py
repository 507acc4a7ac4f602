from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.client import Client
from tests.cli.contract_server import TOKEN
from tests.client.query_server import QueryServer, serving


@pytest.fixture
def server() -> Iterator[QueryServer]:
    with serving() as state:
        state.tables["notes"] = {"name": "notes", "columns": {"v": "long"}}
        yield state


@pytest.fixture
def client(server: QueryServer) -> Iterator[Client]:
    with Client(server.url, TOKEN, retry_s=20) as made:
        yield made
