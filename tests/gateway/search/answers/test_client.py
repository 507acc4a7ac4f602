"""The command and the Python client against a real gateway on a real port."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvicorn

from frazil.client import Client
from frazil.errors import InvalidInput
from frazil.gateway.http import listen
from frazil.gateway.http.app import create_app
from tests.gateway.http.harness import TOKEN
from tests.gateway.search.answers.conftest import SearchHouse, note

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(house: SearchHouse) -> AsyncIterator[str]:
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(house.running.gateway), lifespan="off", log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    await serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def table(house: SearchHouse) -> str:
    name = await house.notes()
    await house.publish(
        name,
        note("tea", "Green tea is drunk without milk.", title="Tea", year=2021),
        note("boat", "A boat on the lake.", title="Boats", year=2022),
        note("trick", "tea \x1b[2J\u202e [red]x[/]", title="Trick", year=2023),
    )
    return name


async def frazil(url: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "frazil", "search", *arguments],
        cwd=folder,
        env={"FRAZIL_URL": url, "FRAZIL_TOKEN": TOKEN, "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def test_the_client_searches(url: str, table: str) -> None:
    def asked() -> None:
        with Client(url, TOKEN, read_your_writes=True) as client:
            answer = client.search(table, "green tea", filter="year < 2022", columns=["title"], k=5)
            (hit,) = answer
            assert (hit.id, hit.row, hit.fresh, len(answer)) == ("tea", {"title": "Tea"}, True, 1)
            assert hit.snippet is not None and "tea" in hit.snippet.marked("<", ">").lower()
            assert answer.token and answer.mode == "hybrid" and answer.generation is None and answer.fresh_rows == 1
            client.publish(table, [{"id": "new", "data": {"body": "a lighthouse", "year": 2030}}])
            assert [hit.id for hit in client.search(table, "lighthouse", mode="text", fields=["body"])] == ["new"]
            assert client.search(table, vector=[1.0] * 256, k=1).mode == "vector"
            with pytest.raises(InvalidInput) as refused:
                client.search(table, "tea", filter="nope = 1")
            assert refused.value.code == "bad_sql"

    await asyncio.to_thread(asked)


async def test_the_command_shows_what_was_found(url: str, table: str, tmp_path: Path) -> None:
    code, out, err = await frazil(url, tmp_path, table, "tea", "--mode", "text", "--filter", "year < 2022")
    assert (code, err) == (0, "")
    first, snippet, values, facts, token = out.splitlines()
    assert first.startswith("1. tea  ") and first.endswith("fresh")
    assert snippet.strip() in ("Green tea is drunk without milk.", "Tea") and "year 2021" in values
    assert facts.startswith("1 hit (text) · no artifact yet · 1 fresh row searched · ") and token.startswith("token ")
    code, out, _ = await frazil(url, tmp_path, table, "tea", "--json", "-k", "1", "--columns", "title,year")
    answer: Any = json.loads(out)
    assert code == 0 and len(answer["hits"]) == 1 and [*answer["hits"][0]["row"]] == ["title", "year"]
    (tmp_path / "v.json").write_text(json.dumps([1.0] * 256))
    code, out, _ = await frazil(url, tmp_path, table, "--vector", "v.json", "-k", "2")
    assert code == 0 and "2 hits (vector)" in out


async def test_the_command_cannot_be_steered_and_says_what_is_wrong(url: str, table: str, tmp_path: Path) -> None:
    code, out, _ = await frazil(url, tmp_path, table, "trick tea", "--mode", "text")
    assert code == 0 and r"\x1b[2J\u202e [red]x[/]" in out and not set(out) & set("\x1b\u202e")
    code, _, err = await frazil(url, tmp_path, table, "tea", "--filter", "nope = 1")
    assert code == 1 and err.startswith("Error: ") and "Try:" in err
    code, _, err = await frazil(url, tmp_path, table)
    assert code == 1 and "Error: a search needs a `query` in words, or a `vector`" in err
    code, _, err = await frazil(url, tmp_path, table, "--vector", "absent.json")
    assert code == 1 and "absent.json cannot be read" in err
