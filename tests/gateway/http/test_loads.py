from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.access import parse_grants
from frazil.events.declaration import parse_table
from frazil.gateway.http.uploads import forget_left_uploads
from frazil.lake.catalog import Lake
from frazil.registry import finish_job, open_jobs, submit_job
from tests.gateway.http.harness import Running
from tests.gateway.http.test_maintenance import pipeline_says


async def test_an_upload_is_kept_until_its_job_is_done(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "ok")
    options = "filename=..%2Fevil%20name.csv&delimiter=%3B&header=true&max_bad=3&null_words=NA,-&mode=append"
    asked = await gateway.http.post(f"/v1/tables/orders/loads?{options}", content=b"item;amount\nice;1\n")
    assert asked.status_code == 202, asked.text
    (job,) = open_jobs(lake.registry, ["csv"])
    assert (job.id, job.subject, job.asked_by) == (asked.json()["id"], "main.orders", "admin")
    (path,) = (Path(file) for file in job.params["files"])
    assert path.name == "evil_name.csv" and path.parent.parent == tmp_path / "uploads"
    assert path.read_bytes() == b"item;amount\nice;1\n" and job.params["uploaded"] is True
    given = {name: job.params[name] for name in ("delimiter", "header", "null_words", "max_bad")}
    assert given == {"delimiter": ";", "header": True, "null_words": ["NA", "-"], "max_bad": {"rows": 3, "share": None}}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("mode=upsert", "bad_load"),
        ("delimiter=ab", "bad_csv_option"),
        ("header=maybe", "bad_csv_option"),
        ("max_bad=lots", "bad_load"),
        ("encoding=punycode", "bad_encoding"),
        ("encoding=cp1225", "bad_encoding"),
        ("colour=red", "unknown_parameter"),
    ],
)
async def test_an_upload_that_makes_no_sense_leaves_nothing(
    gateway: Running, lake: Lake, tmp_path: Path, query: str, code: str
) -> None:
    pipeline_says(tmp_path, "ok")
    told = await gateway.http.post(f"/v1/tables/orders/loads?{query}", content=b"item\nice\n")
    assert told.status_code == 422 and told.json()["error"]["code"] == code
    assert open_jobs(lake.registry) == [] and not list((tmp_path / "uploads").glob("*"))


async def test_an_upload_that_is_too_large_or_breaks_off_leaves_nothing(
    gateway: Running, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_says(tmp_path, "ok")
    small = gateway.gateway.settings.model_copy(update={"max_upload_bytes": 100})
    monkeypatch.setattr(gateway.gateway, "settings", small)
    told = await gateway.http.post("/v1/tables/orders/loads", content=b"x" * 101)
    assert told.status_code == 413 and told.json()["error"]["code"] == "body_too_large"

    async def breaks_off() -> AsyncIterator[bytes]:
        yield b"item\n"
        raise httpx.ReadError("gone")

    with contextlib.suppress(httpx.ReadError):
        broken = await gateway.http.post("/v1/tables/orders/loads", content=breaks_off())
        assert broken.status_code >= 400
    assert open_jobs(lake.registry) == [] and not list((tmp_path / "uploads").glob("*"))


async def test_rows_are_replaced_by_admins_only(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "ok")
    _, secret = gateway.gateway.access.tokens.create("loader", parse_grants(["ingest:orders"]), created_by="admin")
    headers = {"authorization": f"Bearer {secret}"}
    path = "/v1/tables/orders/loads"
    refused = await gateway.http.post(f"{path}?mode=replace", content=b"item\nice\n", headers=headers)
    assert refused.status_code == 403
    asked = await gateway.http.post(path, content=b"item\nice\n", headers=headers)
    assert asked.status_code == 202
    job = asked.json()["id"]
    assert (await gateway.http.get(f"/v1/jobs/{job}", headers=headers)).json()["state"] == "waiting"
    _, other = gateway.gateway.access.tokens.create("other", parse_grants(["ingest:orders"]), created_by="admin")
    hidden = await gateway.http.get(f"/v1/jobs/{job}", headers={"authorization": f"Bearer {other}"})
    assert hidden.status_code == 404, "a job is shown to who asked for it"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/{id}"])
async def test_who_is_told_that_a_job_is_done_finds_what_it_did(gateway: Running, lake: Lake, path: str) -> None:
    gateway.gateway.directory._poll_seconds = 3600.0
    await gateway.gateway.directory.refresh()
    job = submit_job(lake.registry, "csv", "main.loaded", {}, asked_by="admin")
    lake.create_bulk(parse_table({"name": "loaded", "kind": "bulk", "columns": {"n": "long"}}))
    finish_job(lake.registry, job, {"state": "done", "rows": 0})
    assert (await gateway.http.get(path.format(id=job.id))).status_code == 200
    assert "main.loaded" in {table.name for table in gateway.gateway.directory.tables()}


async def test_files_of_the_pipeline_are_named_by_whole_paths(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "ok")
    body: dict[str, Any] = {"table": "orders", "files": ["/data/a.csv"], "uploaded": True}
    asked = await gateway.http.post("/v1/loads/csv", json=body)
    assert asked.status_code == 202
    (job,) = open_jobs(lake.registry, ["csv"])
    assert job.params["uploaded"] is False, "or a request could have any file deleted"
    refused = await gateway.http.post("/v1/loads/csv", json={**body, "files": ["a.csv"]})
    assert refused.status_code == 422
    asked = await gateway.http.post("/v1/loads/postgres", json={"source": "shop", "what": "archive"})
    assert asked.status_code == 202 and open_jobs(lake.registry, ["postgres"])[0].subject == "shop"


async def test_uploads_of_long_ago_go_unless_a_job_wants_them(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    for name in ("old", "wanted", "new"):
        (tmp_path / "uploads" / name).mkdir(parents=True)
        (tmp_path / "uploads" / name / "a.csv").write_text("n\n")
    for name in ("old", "wanted"):
        for path in (tmp_path / "uploads" / name / "a.csv", tmp_path / "uploads" / name):
            os.utime(path, (time.time() - 4000,) * 2)
    job = submit_job(lake.registry, "csv", "t", {"files": [str(tmp_path / "uploads" / "wanted" / "a.csv")]})
    forget_left_uploads(gateway.gateway)
    assert sorted(path.name for path in (tmp_path / "uploads").iterdir()) == ["new", "wanted"]
    finish_job(lake.registry, job, {"state": "done"})
    forget_left_uploads(gateway.gateway)
    assert sorted(path.name for path in (tmp_path / "uploads").iterdir()) == ["new"]


async def test_a_bulk_table_takes_no_events(gateway: Running, lake: Lake) -> None:
    declared = {"name": "archive.nights", "kind": "bulk", "columns": {"dt": "date"}, "partition": ["dt"]}
    assert (await gateway.http.post("/v1/tables", json=declared)).status_code == 201
    assert (await gateway.http.post("/v1/tables", json=declared)).status_code == 200
    refused = await gateway.http.post("/v1/tables/archive.nights/events", json={"events": [{"data": {}}]})
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "not_streamed"
    told = (await gateway.http.get("/v1/tables/archive.nights")).json()
    assert told["kind"] == "bulk" and told["lag"] == {"events": 0, "seconds": 0.0}
    assert [column["name"] for column in told["schema"]] == ["dt"]
    assert lake.table("archive.nights").spec == parse_table(declared)
    status = (await gateway.http.get("/v1/status")).json()
    assert "archive.nights" in status["tables"]


async def test_what_a_finished_job_made_is_there_for_whoever_is_told(gateway: Running, lake: Lake) -> None:
    directory = gateway.gateway.directory
    await directory.close()  # nothing is looked for in the background any more
    job = submit_job(lake.registry, "csv", "main.made", {})
    await gateway.http.get(f"/v1/jobs/{job.id}")
    lake.create_bulk(parse_table({"name": "made", "kind": "bulk", "columns": {"a": "long"}}))
    finish_job(lake.registry, job, {"state": "done"})
    assert "main.made" not in {table.name for table in directory.tables()}
    assert (await gateway.http.get(f"/v1/jobs/{job.id}")).json()["state"] == "done"
    assert "main.made" in {table.name for table in directory.tables()}
