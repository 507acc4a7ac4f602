from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.lake.catalog import Lake
from frazil.registry import finish_job, open_jobs
from frazil.serving import Profiles, parse_profile
from tests.gateway.http.harness import Running
from tests.gateway.http.test_maintenance import pipeline_says
from tests.lake.staging import append
from tests.pipeline.embeddings.place import NOTES
from tests.serving.builds.yard import Yard

PATH = "/v1/tables/notes"


@pytest.fixture
async def yard(gateway: Running, lake: Lake, tmp_path: Path) -> Yard:
    """A searched table with two rows, and a pipeline that says it is there."""
    pipeline_says(tmp_path, "ok")
    declared = await gateway.http.post("/v1/tables", json=NOTES)
    assert declared.status_code == 201, declared.text
    append(lake, "main.notes", [{"_id": "a", "body": "One."}, {"_id": "b", "body": "Two."}])
    return Yard(lake, tmp_path / "yard")


async def test_a_build_is_asked_for_and_told(gateway: Running, yard: Yard) -> None:
    Profiles(yard.lake.registry).put(parse_profile("exact", {"table": "notes", "index": "flat"}))
    for body, shelf in (({}, "notes"), ({"profile": "exact", "force": True}, "notes@exact")):
        asked = await gateway.http.post(f"{PATH}/build", json=body)
        assert asked.status_code == 202 and asked.json()["subject"] == "notes"
        (job,) = open_jobs(yard.lake.registry, ["build"])
        assert (job.id, job.asked_by) == (asked.json()["id"], "admin")
        (running,) = (await gateway.http.get("/v1/status")).json()["jobs"]
        assert (running["id"], running["kind"], running["state"]) == (job.id, "build", "waiting")
        report = yard.builds.run(job, lambda progress: None)
        finish_job(yard.lake.registry, job, {"state": "done", **report})
        told = (await gateway.http.get(f"/v1/jobs/{job.id}")).json()
        assert (told["state"], told["built"], told["shelf"], told["rows"]) == ("done", True, shelf, 2)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"table": "orders"}, 422, "bad_build"),
        ({"embedding": "j1"}, 422, "bad_build"),
        ({"forced": True}, 422, "unknown_field"),
        ({"force": "yes"}, 422, "bad_build"),
        ({"profile": 7}, 422, "bad_build"),
        ({"profile": "nobody"}, 404, "profile_not_found"),
        ([], 422, "bad_build"),
    ],
)
async def test_what_cannot_be_built_is_refused(gateway: Running, yard: Yard, body: Any, status: int, code: str) -> None:
    refused = await gateway.http.post(f"{PATH}/build", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert open_jobs(yard.lake.registry, ["build"]) == []


async def test_tables_that_are_not_searched_and_profiles_of_others(gateway: Running, yard: Yard) -> None:
    await gateway.declare()
    refused = await gateway.http.post("/v1/tables/orders/build", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_build")
    Profiles(yard.lake.registry).put(parse_profile("of-orders", {"table": "orders", "index": "flat"}))
    refused = await gateway.http.post(f"{PATH}/build", json={"profile": "of-orders"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_build")


async def test_without_a_pipeline_nobody_is_kept_waiting(gateway: Running, yard: Yard, tmp_path: Path) -> None:
    pipeline_says(tmp_path, "down")
    refused = await gateway.http.post(f"{PATH}/build", json={})
    assert refused.status_code == 503
    assert open_jobs(yard.lake.registry, ["build"]) == []


async def test_a_purge_takes_the_artifacts_with_it(gateway: Running, yard: Yard) -> None:
    yard.build()
    files = yard.shelf().objects
    assert list(files.list("main.notes/"))
    assert (await gateway.http.delete(PATH)).status_code == 200
    assert list(files.list("main.notes/")), "a dropped table can be brought back"
    assert (await gateway.http.delete(f"{PATH}?purge=true")).status_code == 200
    assert list(files.list("main.notes/")) == [] and yard.current() is None
