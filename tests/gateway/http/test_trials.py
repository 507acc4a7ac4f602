from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.access import parse_grants
from frazil.lake.catalog import Lake
from frazil.registry import finish_job, open_jobs
from frazil.requests import TRIAL
from frazil.serving.index_choice import chosen_index
from tests.gateway.http.harness import Running
from tests.gateway.http.test_maintenance import pipeline_says
from tests.pipeline.embeddings.place import NOTES, Place
from tests.serving.sentences import sentences
from tests.serving.trials.place import TrialPlace

PATH = "/v1/tables/notes/trials"


@pytest.fixture
async def notes(gateway: Running, lake: Lake, tmp_path: Path) -> TrialPlace:
    """A searched table with vectors, and a pipeline that says it is there."""
    pipeline_says(tmp_path, "ok")
    declared = await gateway.http.post("/v1/tables", json=NOTES)
    assert declared.status_code == 201, declared.text
    place = Place(lake)
    place.add([{"_id": f"d{number}", "body": sentences()[number]} for number in range(40)])
    place.embed()
    return TrialPlace(lake, tmp_path / "scratch")


def do_jobs(place: TrialPlace) -> None:
    for job in open_jobs(place.lake.registry, [TRIAL.name]):
        finish_job(place.lake.registry, job, {"state": "done", **place.do(job)})


async def test_trials_are_asked_for_read_and_promoted(gateway: Running, notes: TrialPlace) -> None:
    empty = await gateway.http.get(PATH)
    assert empty.json() == {"table": "notes", "trials": []}
    nothing = await gateway.http.post(f"{PATH}/best", json={})
    assert nothing.status_code == 404 and nothing.json()["error"]["code"] == "no_trials"
    asked = await gateway.http.post(PATH, json={"grid": ["flat", "pq"], "queries": 10})
    assert asked.status_code == 202 and asked.json()["subject"] == "notes", asked.text
    do_jobs(notes)
    told = (await gateway.http.get(f"/v1/jobs/{asked.json()['id']}")).json()
    assert told["state"] == "done" and [trial["state"] for trial in told["trials"]] == ["ok", "skipped"]
    listed = (await gateway.http.get(PATH, params={"run": told["run"]})).json()["trials"]
    assert [trial["trial"] for trial in listed] == [trial["trial"] for trial in told["trials"]][::-1]
    assert listed[1]["config"] == {"kind": "flat"} and listed[1]["machine"]["cores"] >= 1
    best = (await gateway.http.post(f"{PATH}/best", json={"rule": "fastest with recall >= 1"})).json()
    assert best["config"] == {"kind": "flat"} and best["chosen"] is None
    promoted = await gateway.http.post(f"{PATH}/best", json={"promote": True})
    assert promoted.json()["chosen"]["config"] == {"kind": "flat"}
    assert chosen_index(notes.lake.registry, "main.notes", "wordllama") is not None
    forgotten = await gateway.http.delete(f"{PATH}/best")
    assert forgotten.json()["forgotten"] == {"kind": "flat"}
    assert chosen_index(notes.lake.registry, "main.notes", "wordllama") is None
    kinds = [entry["kind"] for entry in gateway.gateway.journal.read(limit=10)]
    assert {"index_chosen", "index_forgotten"} <= set(kinds)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (PATH, {"kind": "pq"}, "unknown_field"),
        (PATH, {"table": "orders"}, "bad_trial"),
        (PATH, [], "bad_trial"),
        (PATH, {"kinds": ["annoy"]}, "bad_trial"),
        (f"{PATH}/best", {"rule": "nice"}, "bad_trial"),
        (f"{PATH}/best", {"rule": "fastest with recall >= 1", "recall": 1}, "bad_trial"),
        (f"{PATH}/best", {"recall": 2}, "bad_trial"),
        (f"{PATH}/best", {"by": "beauty"}, "bad_trial"),
        (f"{PATH}/best", {"promte": True}, "unknown_field"),
    ],
)
async def test_what_makes_no_sense_is_refused_at_once(
    gateway: Running, notes: TrialPlace, path: str, body: Any, code: str
) -> None:
    told = await gateway.http.post(path, json=body)
    assert told.status_code == 422 and told.json()["error"]["code"] == code, told.text
    assert open_jobs(notes.lake.registry, [TRIAL.name]) == []


async def test_a_table_that_is_not_searched_has_no_trials(gateway: Running, notes: TrialPlace) -> None:
    told = await gateway.http.post("/v1/tables/orders/trials", json={})
    assert told.status_code == 404 and told.json()["error"]["code"] == "not_searched"


async def test_only_who_may_read_all_sees_trials_and_only_admins_try(gateway: Running, notes: TrialPlace) -> None:
    def headers(*grants: Any) -> dict[str, str]:
        _, secret = gateway.gateway.access.tokens.create("someone", parse_grants(list(grants)), created_by="admin")
        return {"authorization": f"Bearer {secret}"}

    async def ask(method: str, path: str, who: dict[str, str], body: Any = None) -> httpx.Response:
        return await gateway.http.request(method, path, headers=who, json=body)

    reader, part = headers("read:notes"), headers({"scope": "read:notes", "where": "title = 'a'"})
    stranger = headers("read:orders")
    assert (await ask("GET", PATH, reader)).status_code == 200
    assert (await ask("GET", PATH, part)).status_code == 403
    assert (await ask("GET", PATH, stranger)).status_code == 404
    assert (await ask("POST", PATH, reader, {})).status_code == 403
    assert (await ask("POST", f"{PATH}/best", reader, {"promote": True})).status_code == 403
    assert (await ask("POST", f"{PATH}/best", reader, {})).json()["error"]["code"] == "no_trials"
    assert (await ask("DELETE", f"{PATH}/best", reader)).status_code == 403
