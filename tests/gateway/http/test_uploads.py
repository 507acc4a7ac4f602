"""Uploads of callers who send too much, too often, or go away; and that nobody but admins is shown a path."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ByteSize

from frazil.access import AccessControl, parse_grants
from frazil.bus.memory import MemoryBus
from frazil.errors import Conflict, FrazilError, Unavailable
from frazil.gateway.http import listen, serve
from frazil.gateway.http.server_paths import ServerPaths
from frazil.lake.catalog import Lake
from frazil.registry import finish_job, open_jobs, submit_job
from frazil.runtime import assemble_gateway
from frazil.settings import IngestSettings
from frazil.storage import Journal
from tests.gateway.http.harness import ORDERS, TOKEN, Running, running
from tests.gateway.http.test_maintenance import pipeline_says

PATH = "/v1/tables/orders/loads"


@pytest.fixture
async def limited(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> AsyncIterator[Running]:
    async with running(memory_bus, lake, tmp_path, max_waiting_upload_bytes=1000, max_open_jobs=3) as started:
        await started.declare()
        pipeline_says(tmp_path, "ok")
        yield started


def headers(gateway: Running, name: str, scopes: Iterable[str] = ("ingest:orders",)) -> dict[str, str]:
    _, secret = gateway.gateway.access.tokens.create(name, parse_grants(list(scopes)), created_by="admin")
    return {"authorization": f"Bearer {secret}"}


def files_of(folder: Path) -> list[Path]:
    return [path for path in (folder / "uploads").rglob("*") if path.is_file()]


async def test_the_waiting_files_of_a_token_have_a_quota(limited: Running, lake: Lake, tmp_path: Path) -> None:
    greedy, modest = headers(limited, "greedy"), headers(limited, "modest")
    assert (await limited.http.post(PATH, content=b"x" * 600, headers=greedy)).status_code == 202
    refused = await limited.http.post(PATH, content=b"x" * 600, headers=greedy)
    assert refused.status_code == 429 and refused.json()["error"]["code"] == "upload_quota"
    assert int(refused.headers["retry-after"]) > 1
    assert len(files_of(tmp_path)) == 1, "what was refused is gone"
    assert (await limited.http.post(PATH, content=b"x" * 600, headers=modest)).status_code == 202, "each has its own"
    assert (await limited.http.post(PATH, content=b"x" * 2000)).status_code == 202, "admins have none"
    (job,) = [job for job in open_jobs(lake.registry) if Path(job.params["files"][0]).stat().st_size == 600][:1]
    Path(job.params["files"][0]).unlink()
    finish_job(lake.registry, job, {"state": "done"})
    assert (await limited.http.post(PATH, content=b"x" * 600, headers=greedy)).status_code == 202


async def test_files_that_arrive_at_once_count_together(limited: Running, tmp_path: Path) -> None:
    greedy = headers(limited, "greedy")
    most = asyncio.Semaphore(0)

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 400
        await most.acquire()
        yield b"x" * 400

    sending = [asyncio.create_task(limited.http.post(PATH, content=body(), headers=greedy)) for _ in range(3)]
    async with asyncio.timeout(20):
        while not any(task.done() for task in sending):
            await asyncio.sleep(0.01)
        for _ in sending:
            most.release()
        answers = [await task for task in sending]
    assert sorted(answer.status_code for answer in answers) in ([202, 429, 429], [429, 429, 429])
    assert len(files_of(tmp_path)) == sum(answer.status_code == 202 for answer in answers)


async def test_a_token_has_a_limit_of_open_jobs(limited: Running, lake: Lake, tmp_path: Path) -> None:
    greedy, modest = headers(limited, "greedy"), headers(limited, "modest")
    answers = await asyncio.gather(*(limited.http.post(PATH, content=b"n\n1\n", headers=greedy) for _ in range(10)))
    assert len(open_jobs(lake.registry)) == sum(answer.status_code == 202 for answer in answers) <= 3
    while (last := await limited.http.post(PATH, content=b"n\n1\n", headers=greedy)).status_code == 202:
        pass
    assert last.status_code == 429 and last.json()["error"]["code"] == "too_many_jobs"
    assert len(open_jobs(lake.registry)) == len(files_of(tmp_path)) == 3
    assert (await limited.http.post(PATH, content=b"n\n1\n", headers=modest)).status_code == 202
    for _ in range(5):
        assert (await limited.http.post(PATH, content=b"n\n1\n")).status_code == 202, "admins have none"


async def test_two_files_of_one_name_do_not_meet(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "ok")
    sent = [f"n\n{number}\n".encode() for number in range(5)]
    await asyncio.gather(*(gateway.http.post(f"{PATH}?filename=a.csv", content=content) for content in sent))
    found = [Path(path) for job in open_jobs(lake.registry) for path in job.params["files"]]
    assert {path.name for path in found} == {"a.csv"} and sorted(path.read_bytes() for path in found) == sent


async def test_a_full_disk_leaves_nothing(
    gateway: Running, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_says(tmp_path, "ok")
    monkeypatch.setattr(gateway.gateway, "min_free_bytes", 1 << 62)
    told = await gateway.http.post(PATH, content=b"n\n1\n")
    assert told.status_code == 503 and told.json()["error"]["code"] == "disk_full"
    monkeypatch.setattr(gateway.gateway, "min_free_bytes", 0)
    monkeypatch.setattr("frazil.gateway.http.uploads.open", lambda *_: _Full(), raising=False)
    told = await gateway.http.post(PATH, content=b"n\n1\n")
    assert told.status_code == 503 and told.json()["error"]["code"] == "disk_full"
    assert open_jobs(lake.registry) == [] and not list((tmp_path / "uploads").iterdir())


class _Full:
    """A file on a disk that another program fills."""

    name = "/dev/shm/a"

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", self.name)


async def test_a_client_that_goes_away_half_way_leaves_nothing(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    pipeline_says(tmp_path, "ok")
    gateway = assemble_gateway(
        bus=memory_bus,
        lake=lake,
        journal=Journal(tmp_path / "journal"),
        access=AccessControl(registry=lake.registry, admin_token=TOKEN, audit_folder=tmp_path / "audit"),
        ingest=IngestSettings(max_upload_bytes=ByteSize(1 << 30)),
        pipeline_file=tmp_path / "pipeline.json",
        uploads=tmp_path / "uploads",
    )
    listening = listen("127.0.0.1", 0)
    serving = asyncio.create_task(serve(gateway, listening, stop=stop, on_ready=ready.set))
    await asyncio.wait_for(ready.wait(), 30)
    host, port = listening.getsockname()[:2]
    authorization = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", headers=authorization) as http:
        assert (await http.post("/v1/tables", json=ORDERS)).status_code == 201
    async with asyncio.timeout(60):
        for reset in (False, True):
            _, writer = await asyncio.open_connection(host, port)
            head = (
                f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100000000\r\n\r\n"
            )
            writer.write(head.encode() + b"n\n" + b"1\n" * 1_000_000)
            await writer.drain()
            while not (files_of(tmp_path) and files_of(tmp_path)[0].stat().st_size > 100_000):
                await asyncio.sleep(0.01)
            if reset:
                writer.transport.abort()
            else:
                writer.close()
            while list((tmp_path / "uploads").iterdir()):
                await asyncio.sleep(0.01)
    assert open_jobs(lake.registry) == []
    stop.set()
    await asyncio.wait_for(serving, 30)


@pytest.mark.parametrize("code", ["internal", "object_missing"])
async def test_a_failed_load_names_no_path_to_who_is_not_an_admin(
    gateway: Running, lake: Lake, tmp_path: Path, code: str
) -> None:
    pipeline_says(tmp_path, "ok")
    who = headers(gateway, "loader")
    asked = await gateway.http.post(f"{PATH}?filename=mine.csv", content=b"n\n1\n", headers=who)
    (job,) = open_jobs(lake.registry)
    (upload,) = job.params["files"]
    message = f"OSError: [Errno 5] Input/output error: '{upload}' below {tmp_path}, and file://{tmp_path}/warehouse/x/y.parquet"
    failed = FrazilError(message, code=code, hint=f"look at {tmp_path}/logs", details={"files": [upload]})
    finish_job(lake.registry, job, {"state": "failed", **failed.body()})
    path = f"/v1/jobs/{asked.json()['id']}"
    told = await gateway.http.get(path, headers=who)
    assert str(tmp_path) not in told.text and told.json()["error"]["code"] == code
    assert ("mine.csv" in told.text) == (code != "internal"), "a file is named as its sender named it"
    assert str(tmp_path) in (await gateway.http.get(path)).text, "admins see where it was"


@pytest.mark.parametrize("kind", [Conflict, Unavailable, FrazilError])
async def test_no_error_names_a_path_to_who_is_not_an_admin(
    gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[FrazilError]
) -> None:
    async def fails(*_: Any) -> Any:
        raise kind(
            f"{tmp_path}/warehouse/main/orders/data/f.parquet is gone", hint=f"ls {tmp_path}", details=[str(tmp_path)]
        )

    monkeypatch.setattr(gateway.gateway.directory, "table", fails)
    who = headers(gateway, "reader", ["read:orders", "ingest:orders"])
    told = await gateway.http.get("/v1/tables/orders", headers=who)
    assert str(tmp_path) not in told.text and "f.parquet is gone" in told.json()["error"]["message"]
    assert str(tmp_path) in (await gateway.http.get("/v1/tables/orders")).text


def test_only_paths_are_hidden() -> None:
    places = ServerPaths(["/srv/frazil/data", "/opt/lake", "s3://lake/prod", "/", ""])
    assert places.hidden("declare it first: POST /v1/tables") == "declare it first: POST /v1/tables"
    assert (
        places.hidden("/opt/lakes and /opt/lake/a.csv, '/srv/frazil/data/uploads/0f/a.csv'.")
        == "/opt/lakes and …/a.csv, '…/a.csv'."
    )
    assert places.hidden({"at": ["file:///srv/frazil/data", 1, None]}) == {"at": ["…/data", 1, None]}
    assert places.hidden("s3://lake/prod/t/f.parquet: gone") == "…/f.parquet: gone"
    assert json.dumps(ServerPaths([]).hidden({"a": "/opt/lake"})) == '{"a": "/opt/lake"}'


async def test_an_old_job_without_a_caller_is_nobodys(limited: Running, lake: Lake, tmp_path: Path) -> None:
    for _ in range(5):
        submit_job(lake.registry, "csv", "main.orders", {"files": ["/x"]})
    assert (await limited.http.post(PATH, content=b"n\n1\n", headers=headers(limited, "new"))).status_code == 202
