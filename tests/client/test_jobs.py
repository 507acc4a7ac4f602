from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from frazil.client import Client
from frazil.errors import FrazilError, InvalidInput, Unavailable
from frazil.requests import JOB_KINDS
from tests.cli.contract_server import TOKEN, ContractServer, serving


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with serving() as state:
        yield state


@pytest.fixture
def client(server: ContractServer) -> Iterator[Client]:
    with Client(server.url, TOKEN, retry_s=20) as made:
        yield made


def answer(server: ContractServer, *bodies: dict[str, Any]) -> None:
    server.troubles = [(200, body, {}) for body in bodies]


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_every_kind_is_submitted_to_its_path(client: Client, server: ContractServer, kind: str) -> None:
    answer(server, {"id": "j1", "state": "waiting"}, {"id": "j1", "kind": kind, "state": "done", "rows": 3})
    assert client.jobs.run(kind, {"a": 1}, table="shop.a b")["rows"] == 3
    method, path, _, body = server.requests[0]
    assert (method, path) == ("POST", JOB_KINDS[kind].path.format(table="shop.a%20b"))
    assert json.loads(body) == {"a": 1}


def test_a_kind_that_does_not_exist_is_refused(client: Client, server: ContractServer) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.jobs.submit("dance", {})
    assert "embed" in caught.value.hint and server.requests == []


def test_progress_is_reported_also_under_its_former_name(client: Client, server: ContractServer) -> None:
    running = {"id": "j1", "state": "running", "progress": {"rows": 1, "of": 2}}
    for option in ("on_progress", "tell"):
        seen: list[dict[str, Any]] = []
        answer(server, {"id": "j1"}, running, {"id": "j1", "state": "done"})
        client.build("notes", **{option: seen.append})  # type: ignore[arg-type]
        assert seen == [running]


def test_a_failed_job_raises_its_error_and_a_slow_one_a_timeout(client: Client, server: ContractServer) -> None:
    error = {"message": "broken", "code": "bad_load", "hint": "fix it"}
    answer(server, {"id": "j1", "state": "failed", "error": error})
    with pytest.raises(FrazilError) as caught:
        client.jobs.wait("j1")
    assert (caught.value.code, caught.value.hint) == ("bad_load", "fix it")
    answer(server, {"id": "j1", "state": "waiting"})
    with pytest.raises(Unavailable) as late:
        client.jobs.wait("j1", timeout_s=0)
    assert late.value.code == "job_timeout" and "frazil jobs j1" in late.value.hint


def test_verbs_of_resources_are_also_on_the_client(client: Client) -> None:
    assert client.create_table == client.tables.create
    assert client.maintain == client.maintenance.run
    assert client.job == client.jobs.get
