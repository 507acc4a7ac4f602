from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.access import parse_grants
from frazil.embedding import ModelSettings
from frazil.lake.catalog import Lake
from frazil.registry import finish_job, open_jobs
from tests.gateway.http.harness import Running
from tests.gateway.http.test_maintenance import pipeline_says
from tests.pipeline.embeddings.place import NOTES, Place

PATH = "/v1/tables/notes"


@pytest.fixture
async def notes(gateway: Running, lake: Lake, tmp_path: Path) -> Place:
    """A searched table with two rows, and a pipeline that says it is there."""
    pipeline_says(tmp_path, "ok")
    declared = await gateway.http.post("/v1/tables", json=NOTES)
    assert declared.status_code == 201, declared.text
    place = Place(lake)
    place.add([{"_id": "a", "body": "One."}, {"_id": "b", "body": "Two."}])
    return place


def do_jobs(place: Place) -> None:
    for job in open_jobs(place.lake.registry, ["embed"]):
        finish_job(place.lake.registry, job, {"state": "done", **place.job.run(job, lambda progress: None)})


async def test_a_run_is_asked_for_and_told(gateway: Running, notes: Place) -> None:
    asked = await gateway.http.post(f"{PATH}/embed", json={})
    assert asked.status_code == 202 and asked.json()["subject"] == "notes"
    (job,) = open_jobs(notes.lake.registry, ["embed"])
    assert (job.id, job.subject, job.asked_by) == (asked.json()["id"], "main.notes", "admin")
    do_jobs(notes)
    told = (await gateway.http.get(f"/v1/jobs/{job.id}")).json()
    assert (told["state"], told["embedded"], told["table"]) == ("done", 2, "notes")
    listed = (await gateway.http.get(f"{PATH}/embeddings")).json()
    assert listed["model"] == "wordllama"
    (model,) = listed["models"]
    assert (model["model"], model["vectors"], model["is_of_table"], model["is_up_to_date"]) == (
        "wordllama",
        2,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": "own"}, "bad_embedding"),
        ({"shadow": True}, "bad_embedding"),
        ({"table": "orders"}, "bad_embedding"),
        ({"modell": "wordllama"}, "unknown_field"),
        ([], "bad_embedding"),
    ],
)
async def test_what_makes_no_sense_is_refused_at_once(gateway: Running, notes: Place, body: Any, code: str) -> None:
    told = await gateway.http.post(f"{PATH}/embed", json=body)
    assert told.status_code == 422 and told.json()["error"]["code"] == code
    plain = await gateway.http.post("/v1/tables/orders/embed", json={})
    assert plain.status_code == 422, "it has no text"
    assert open_jobs(notes.lake.registry) == []


async def test_an_old_model_is_deleted_and_the_one_in_use_is_not(gateway: Running, notes: Place) -> None:
    notes.embed()
    await gateway.http.post(f"{PATH}/embed", json={"model": "second", "shadow": True})
    busy = await gateway.http.delete(f"{PATH}/embeddings/wordy")
    assert busy.status_code == 409 and busy.json()["error"]["code"] == "embedding_runs"
    notes.models = {"second": ModelSettings()}
    do_jobs(notes)
    for model, status, code in (("wordllama", 409, "model_in_use"), ("third", 404, "model_not_found")):
        told = await gateway.http.delete(f"{PATH}/embeddings/{model}")
        assert (told.status_code, told.json()["error"]["code"]) == (status, code)
    told = await gateway.http.delete(f"{PATH}/embeddings/second")
    assert told.json() == {"table": "notes", "model": "second", "deleted": 2}
    assert {row["model"] for row in notes.vectors()} == {"wordllama"}


async def test_vectors_are_shown_to_who_may_read_the_whole_table(gateway: Running, notes: Place) -> None:
    notes.embed()
    grants: dict[str, list[Any]] = {
        "whole": ["sql", "read:notes"],
        "all": ["sql", "read:*"],
        "some rows": ["sql", {"scope": "read:notes", "where": "title = 'x'"}],
        "some columns": ["sql", {"scope": "read:notes", "mask": ["body"]}],
        "writer": ["ingest:notes", "ingest:*"],
        "another": ["sql", "read:orders"],
    }
    shown = {}
    for name, words in grants.items():
        _, secret = gateway.gateway.access.tokens.create(name, parse_grants(words), created_by="admin")
        headers = {"authorization": f"Bearer {secret}"}
        listed = (await gateway.http.get("/v1/tables", headers=headers)).json()["tables"]
        beside = {table["name"] for table in listed if "__" in table["name"]}
        described: httpx.Response = await gateway.http.get(f"{PATH}__embeddings", headers=headers)
        shown[name] = (beside, described.status_code)
    both = {"notes__embeddings", "notes__embeddings__quarantine"}
    nothing = (set[str](), 404)
    assert shown == {
        "whole": (both, 200),
        "all": (both, 200),
        "some rows": nothing,
        "some columns": nothing,
        "writer": nothing,
        "another": nothing,
    }


async def test_nobody_loads_into_vectors_or_declares_their_names(gateway: Running, notes: Place) -> None:
    notes.embed()
    _, secret = gateway.gateway.access.tokens.create("w", parse_grants(["ingest:*", "read:*"]), created_by="admin")
    headers = {"authorization": f"Bearer {secret}"}
    told = await gateway.http.post(f"{PATH}__embeddings/loads", content=b"document\nx\n", headers=headers)
    assert told.status_code == 403
    declared = await gateway.http.post("/v1/tables", json={**NOTES, "name": "x__embeddings"})
    assert declared.json()["error"]["code"] == "reserved_name"
    declared = await gateway.http.post("/v1/tables", json={**NOTES, "name": "x" * 40})
    assert declared.status_code == 422 and declared.json()["error"]["code"] == "bad_table_name"
    declared = await gateway.http.post("/v1/tables", json={**NOTES, "name": "x" * 39})
    assert declared.status_code == 201


async def test_vectors_are_dropped_brought_back_and_purged_with_their_table(gateway: Running, notes: Place) -> None:
    notes.embed()
    assert (await gateway.http.delete(PATH)).status_code == 200
    assert notes.lake.names() == ["main.orders"]
    assert (await gateway.http.post(f"{PATH}/undrop")).status_code == 200
    assert len(notes.vectors()) == 2 and notes.embed()["rows"] == 0
    assert (await gateway.http.delete(PATH)).status_code == 200
    purged = await gateway.http.delete(f"{PATH}?purge=true")
    assert purged.status_code == 200 and len(purged.json()["tables"]) == 3
    assert list(notes.lake.every_location()) == ["main.orders"]
    assert not list((notes.lake.warehouse.folder() / "main").glob("notes*/**/*.parquet"))
