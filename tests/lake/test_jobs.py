from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from frazil.errors import NotFound
from frazil.lake.catalog import Lake
from frazil.lake.maintenance import LastRuns, last_runs_of, save_last_runs
from frazil.registry import finish_job, job_status, list_jobs, open_jobs, set_progress, submit_job


def test_a_job_is_open_until_it_has_a_result(lake: Lake) -> None:
    registry = lake.registry
    first = submit_job(registry, "maintenance", "main.a", {"what": "compact", "sort": ["v"]}, asked_by="admin")
    second = submit_job(registry, "csv", "main.b", {})
    assert open_jobs(registry) == [first, second], "in the order in which they came"
    assert open_jobs(registry, ["csv"]) == [second]
    assert job_status(registry, first.id)["state"] == "waiting"
    set_progress(registry, first, {"files": 1})
    set_progress(registry, first, {"files": 2})
    told = job_status(registry, first.id)
    assert (told["state"], told["progress"], told["asked_by"]) == ("running", {"files": 2}, "admin")
    finish_job(registry, first, {"state": "done", "steps": []})
    finish_job(registry, first, {"state": "done", "steps": ["a pipeline that died before it closed the job"]})
    assert open_jobs(registry) == [second]
    told = job_status(registry, first.id)
    assert told["state"] == "done" and told["steps"] == [] and told["subject"] == "main.a"
    assert [job["id"] for job in list_jobs(registry)] == [second.id, first.id]
    with pytest.raises(NotFound):
        job_status(registry, "unheard-of")


def test_results_of_long_ago_are_forgotten(lake: Lake) -> None:
    registry = lake.registry
    for name, age in (("old", timedelta(days=8)), ("recent", timedelta(days=6))):
        body = {"id": name, "at": datetime.now(UTC) - age, "state": "done"}
        registry.put(f"job/done/{name}", msgspec.json.encode(body), None)
    finish_job(registry, submit_job(registry, "maintenance", "main.a", {}), {"state": "done"})
    assert job_status(registry, "recent")["state"] == "done"
    with pytest.raises(NotFound):
        job_status(registry, "old")


def test_it_is_remembered_when_a_table_was_looked_after(lake: Lake) -> None:
    now = datetime.now(UTC)
    assert last_runs_of(lake.registry, "u") == LastRuns()
    save_last_runs(lake.registry, "u", LastRuns(compacted_at=now))
    save_last_runs(lake.registry, "u", LastRuns(compacted_at=now, orphans_sought_at=now))
    assert last_runs_of(lake.registry, "u") == LastRuns(now, now)
