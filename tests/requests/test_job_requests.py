"""Job requests: the words of their refusals, and the jobs of older versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import FrazilError
from frazil.pipeline.sources.csv import parse_load
from frazil.requests import (
    JOB_KINDS,
    BuildRequest,
    BuildTurn,
    EmbedRequest,
    LoadRequest,
    MaintenanceRequest,
    PostgresRequest,
    Tolerance,
    TrialRequest,
)
from frazil.runtime.job_handlers import open_lanes
from frazil.serving.trials import parse_trial

PARSERS = {
    "csv": parse_load,
    "postgres": PostgresRequest.parse,
    "embed": EmbedRequest.parse,
    "build": BuildRequest.parse,
    "trial": parse_trial,
    "maintenance": MaintenanceRequest.parse,
}
REFUSALS = (Path(__file__).parent / "job_refusals.jsonl").read_text().splitlines()
"""One a line: kind, body, code, message, hint."""


@pytest.mark.parametrize("kind", PARSERS)
def test_bad_bodies_are_refused_in_the_same_words(kind: str) -> None:
    wanted = [case for line in REFUSALS if (case := json.loads(line))[0] == kind]
    found = []
    for _, body, *_ in wanted:
        with pytest.raises(FrazilError) as refused:
            PARSERS[kind](body)
        found.append([kind, body, refused.value.code, refused.value.message, refused.value.hint])
    assert len(wanted) > 20 and found == wanted


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("csv", {"table": "orders", "files": ["/a.csv"]}),
        ("csv", {"table": "orders", "files": ["/a"], "max_bad": "5%", "null_words": ["NA"], "columns": {"a": "long"}}),
        ("csv", {"table": "orders", "files": ["/a"], "quote": "", "header": False, "source": "x", "uploaded": True}),
        ("postgres", {"source": "shop", "run_date": "2026-11-16", "tables": "orders"}),
        ("postgres", {"source": "shop", "what": "incremental", "tables": ["a"], "cursor": "c", "overlap": 5}),
        ("embed", {"table": "notes", "model": "minilm", "shadow": True, "retry": True, "sweep": True}),
        ("build", {"table": "notes", "profile": "fast", "force": True}),
        ("trial", {"table": "notes", "eval_set": ["a", {"vector": [1, 2.5], "expected": "n1"}], "k": 5}),
        ("maintenance", {"what": "compact", "sort": ["v"]}),
        ("maintenance", {"what": "retention", "all_snapshots": True}),
    ],
)
def test_a_request_comes_out_of_its_job_as_it_went_in(kind: str, body: dict[str, Any]) -> None:
    asked = JOB_KINDS[kind].request.parse(body)
    params = json.loads(json.dumps(asked.params()))
    assert JOB_KINDS[kind].request.parse(params) == asked


def test_jobs_that_an_older_version_submitted_are_read() -> None:
    signs = dict.fromkeys(("delimiter", "quote", "escape", "header", "encoding"))
    load: dict[str, Any] = {"table": "main.orders", "files": ["/a.csv"], "mode": "append", **signs}
    load |= {"null_words": [], "columns": {}, "max_bad": {"rows": None, "share": 0.05}, "source": "", "uploaded": False}
    assert LoadRequest.parse(load).tolerance == Tolerance(share=0.05)
    assert LoadRequest.parse({**load, "max_bad": {"rows": 7, "share": None}}).tolerance == Tolerance(7, None)
    archive: dict[str, Any] = {
        "source": "shop",
        "what": "archive",
        "tables": [],
        "run_date": None,
        "into": "",
        "kind": "log",
    }
    archive |= {"cursor": "", "overlap": 0.0, "nulls": "skip", "key": []}
    assert PostgresRequest.parse(archive) == PostgresRequest(source="shop")
    embed = {"table": "main.notes", "model": None, "shadow": False, "retry": False, "sweep": False}
    assert EmbedRequest.parse(embed) == EmbedRequest(table="notes")
    build = {"table": "main.notes", "profile": None, "force": False, "embedding": "1731-ab"}
    assert BuildTurn.parse(build).embedding == "1731-ab"
    assert BuildTurn.parse(BuildRequest(table="notes").params()) == BuildTurn(table="notes")
    question = {"text": "how", "vector": None, "expected": ["n1"]}
    (kept,) = TrialRequest.parse({"table": "main.notes", "eval_set": [question]}).eval_set
    assert kept.text == "how" and kept.expected == ("n1",)
    maintenance = {"what": "compact", "sort": [], "all_snapshots": False}
    assert MaintenanceRequest.parse(maintenance) == MaintenanceRequest(what="compact")


async def test_every_kind_has_one_lane_and_only_maintenance_gives_way() -> None:
    lanes = open_lanes()
    assert sorted(kind for lane in lanes.values() for kind in lane.kinds) == sorted(JOB_KINDS)
    assert [name for name, lane in lanes.items() if lane.gives_way] == ["maintenance"]
