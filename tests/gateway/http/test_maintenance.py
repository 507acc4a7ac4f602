from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pytest

from frazil.lake.catalog import Lake
from frazil.registry import finish_job, open_jobs
from frazil.storage import local_path
from tests.gateway.http.harness import Running
from tests.lake.staging import append


def pipeline_says(folder: Path, state: str) -> None:
    (folder / "pipeline.json").write_bytes(msgspec.json.encode({"state": state, "at": datetime.now(UTC).isoformat()}))


async def test_the_health_of_a_table(gateway: Running, lake: Lake) -> None:
    for number in range(25):
        append(lake, "main.orders", [{"item": "ice", "amount": number}])
    told = (await gateway.http.get("/v1/tables/orders/health")).json()
    assert (told["table"], told["rows"], told["files"], told["small_files"]) == ("orders", 25, 25, 25)
    assert told["last_compaction_at"] is None and told["metadata_bytes"] > 0
    assert told["verdict"] == "25 files are smaller than 33.6 MB: frazil compact orders"
    every = (await gateway.http.get("/v1/health/tables")).json()
    assert every == {"tables": [told]}


async def test_a_dry_run_tells_the_plan_and_asks_nobody(gateway: Running, lake: Lake) -> None:
    for number in range(3):
        append(lake, "main.orders", [{"item": "ice", "amount": number}])
    body = {"what": "compact", "dry_run": True}
    told = await gateway.http.post("/v1/tables/orders/maintenance", json=body)
    assert told.status_code == 200 and [step["what"] for step in told.json()["plan"]] == ["compact"]
    assert open_jobs(lake.registry) == []
    left = local_path(lake.table("main.orders").iceberg.location()) / "data" / "left.parquet"
    left.write_bytes(b"four days old")
    os.utime(left, (time.time() - 4 * 86_400,) * 2)
    body = {"what": "remove_orphans", "dry_run": True}
    told = await gateway.http.post("/v1/tables/orders/maintenance", json=body)
    assert told.json()["orphans"] == 1 and told.json()["files"][0]["path"] == str(left)
    assert left.exists()


async def test_without_a_pipeline_nothing_can_be_done(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "stopped")
    told = await gateway.http.post("/v1/tables/orders/maintenance", json={"what": "compact"})
    assert told.status_code == 503 and told.json()["error"]["code"] == "pipeline_unavailable"
    assert open_jobs(lake.registry) == []


async def test_a_pipeline_that_is_starting_can_be_asked(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "starting")
    asked = await gateway.http.post("/v1/tables/orders/maintenance", json={"what": "compact"})
    assert asked.status_code == 202
    assert [job.id for job in open_jobs(lake.registry)] == [asked.json()["id"]]


async def test_the_pipeline_is_asked_and_its_answer_is_told(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "ok")
    asked = await gateway.http.post("/v1/tables/orders/maintenance", json={"what": "compact", "sort": ["amount"]})
    assert asked.status_code == 202
    (request,) = open_jobs(lake.registry)
    assert (request.id, request.subject, request.params["sort"]) == (asked.json()["id"], "main.orders", ["amount"])
    told = await gateway.http.get(f"/v1/jobs/{request.id}")
    assert told.json()["state"] == "waiting"
    finish_job(lake.registry, request, {"state": "done", "steps": []})
    told = await gateway.http.get(f"/v1/jobs/{request.id}")
    assert told.json()["state"] == "done"


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"what": "explode"},
        {"what": "compact", "sort": "amount"},
        {"what": "compact", "sort": ["absent"]},
        {"what": "compact", "sort": [1]},
        {"what": "expire", "sort": ["amount"]},
        {"what": "compact", "dry_run": "yes"},
        {"what": "compact", "when": "now"},
    ],
)
async def test_what_makes_no_sense_is_refused(gateway: Running, lake: Lake, tmp_path: Path, body: object) -> None:
    pipeline_says(tmp_path, "ok")
    told = await gateway.http.post("/v1/tables/orders/maintenance", json=body)
    assert told.status_code == 422, told.text
    assert open_jobs(lake.registry) == []


async def test_retention_is_planned_and_only_then_asked_for(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    await gateway.declare(name="old", columns={"v": "long", "d": "date"}, partition=["d"])
    path = "/v1/tables/old/maintenance"
    refused = await gateway.http.post(path, json={"what": "retention", "dry_run": True})
    assert refused.status_code == 422 and refused.json()["error"]["code"] == "no_retention"
    altered = await gateway.http.patch("/v1/tables/old", json={"retention_years": 2})
    assert altered.json()["retention_years"] == 2
    append(lake, "main.old", [{"v": 1, "d": date(2001, 2, 3)}, {"v": 2, "d": date.today()}])
    told = (await gateway.http.post(path, json={"what": "retention", "dry_run": True})).json()
    assert told["retention"]["rows"] == 1 and told["retention"]["partitions"][0]["begins"][:10] == "2001-02-03"
    then = {"what": "retention", "dry_run": True, "at": "2003-02-03"}
    assert (await gateway.http.post(path, json=then)).json()["retention"]["rows"] == 0
    assert open_jobs(lake.registry) == [] and lake.table("main.old").rows == 2

    for wrong in ({"at": "2100-01-01"}, {"dry_run": True, "at": "soon"}, {"all_snapshots": 1}):
        assert (await gateway.http.post(path, json={"what": "retention", **wrong})).status_code == 422
    assert (await gateway.http.post(path, json={"what": "expire", "all_snapshots": True})).status_code == 422
    pipeline_says(tmp_path, "ok")
    asked = await gateway.http.post(path, json={"what": "retention", "all_snapshots": True})
    assert asked.status_code == 202
    (job,) = open_jobs(lake.registry)
    assert job.params["what"] == "retention" and job.params["all_snapshots"] is True
