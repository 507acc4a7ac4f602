"""Artifacts over HTTP: what is shown, to whom, and what operators change on every replica."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from frazil.access import parse_grants
from frazil.bus.memory import MemoryBus
from frazil.gateway.search import ShelfReaders
from frazil.lake.catalog import Lake
from frazil.serving import Profile, Profiles
from frazil.serving.artifacts import ArtifactEntry
from tests.gateway.http.harness import Running, running
from tests.gateway.http.test_maintenance import pipeline_says
from tests.gateway.search.place import BY_WORD, NOTES, Place, moved_away, until, wrong_canaries

PATH = "/v1/tables/notes/artifacts"


@dataclass
class Library:
    place: Place
    one: Running
    two: Running
    entries: list[ArtifactEntry]

    async def get(self, path: str, **options: Any) -> dict[str, Any]:
        told = await self.one.http.get(path, **options)
        assert told.status_code == 200, told.text
        return dict(told.json())

    async def post(self, path: str, status: int = 200, **options: Any) -> dict[str, Any]:
        told = await self.one.http.post(path, **options)
        assert told.status_code == status, told.text
        return dict(told.json())

    async def serves(self, entry: ArtifactEntry) -> None:
        for half in (self.one, self.two):
            served = half.gateway.served
            assert served is not None
            await until(partial(_serves, served, entry), "both serve it")
        await until(lambda: len(self.place.shelf().leases()) == 2, "both say so")


def _serves(served: ShelfReaders, entry: ArtifactEntry) -> bool:
    return [(one["generation"], one["state"]) for one in served.status()] == [(entry.generation, "ok")]


@pytest.fixture
async def library(lake: Lake, memory_bus: MemoryBus, tmp_path: Path) -> AsyncIterator[Library]:
    """Two gateways that serve the second of three artifacts."""
    pipeline_says(tmp_path, "ok")
    place = Place(tmp_path, lake, memory_bus)
    await place.declare()
    entries = [place.of_year(year, watermark=100 + year) for year in range(3)]
    for entry in entries[:2]:
        await place.promote(entry)
    async with (
        running(memory_bus, lake, tmp_path, pace=BY_WORD, reader="one") as one,
        running(memory_bus, lake, tmp_path, pace=BY_WORD, reader="two") as two,
    ):
        library = Library(place, one, two, entries)
        await library.serves(entries[1])
        yield library


async def test_they_are_listed_and_shown(library: Library) -> None:
    told = await library.get(PATH)
    first, second, third = library.entries
    assert (told["table"], told["profile"]) == ("notes", None)
    assert (told["current"], told["previous"]) == (second.generation, first.generation)
    assert [(one["generation"], one["state"]) for one in told["artifacts"]] == [
        (third.generation, "candidate"),
        (second.generation, "current"),
        (first.generation, "previous"),
    ]
    current = told["artifacts"][1]
    assert (current["rows"], current["watermark"], current["snapshot_id"]) == (8, 101, 108)
    assert current["vectors"] == current["chunks"] >= 8 and current["bytes"] > 1000 and current["age_seconds"] >= 0
    assert current["model"]["name"] == "wordllama" and current["withdrawn"] is None
    assert sorted(current["served_by"]) == ["one", "two"] and told["artifacts"][0]["served_by"] == []
    assert {reader["serving"] for reader in told["readers"]} == {second.generation}
    shown = await library.get(f"{PATH}/{second.generation}")
    manifest = shown["manifest"]
    assert shown["state"] == "current" and manifest["counts"]["rows"] == 8
    assert {"contents", "index", "text", "hash"} <= manifest["seconds"].keys(), "the build report"
    assert {file["path"] for file in manifest["files"]} >= {"rows.arrow", "vectors.npy"}
    assert manifest["canaries"] and all(canary["expected"] for canary in manifest["canaries"])
    for path, code in ((f"{PATH}/no-such", "artifact_not_found"), ("/v1/tables/none/artifacts", "table_not_found")):
        missing = await library.one.http.get(path)
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, code)
    typo = await library.one.http.get(f"{PATH}?profil=x")
    assert typo.status_code == 422


async def test_what_is_current_and_what_was_need_no_name(library: Library) -> None:
    for word, entry in (("current", library.entries[1]), ("previous", library.entries[0])):
        assert (await library.get(f"{PATH}/{word}"))["generation"] == entry.generation
        told = await library.post(f"{PATH}/{word}/verify")
        assert (told["generation"], told["ok"]) == (entry.generation, True)
    await library.place.declare(name="other")
    nothing = await library.one.http.get("/v1/tables/other/artifacts/current")
    assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "artifact_not_found")


async def test_one_is_checked_without_serving_it(library: Library) -> None:
    third = library.entries[2]
    told = await library.post(f"{PATH}/{third.generation}/verify")
    assert (told["ok"], told["faults"], told["state"]) == (True, [], "candidate")
    bucket = library.place.bucket / "main.notes"
    path = bucket / third.generation / "rows.arrow"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    told = await library.post(f"{PATH}/{third.generation}/verify")
    assert not told["ok"] and told["faults"][0]["code"] == "artifact_file_hash"
    assert told["faults"][0]["file"] == "rows.arrow"
    path.write_bytes(content)
    bad = library.place.of_year(9, watermark=109, spoil=wrong_canaries)
    told = await library.post(f"{PATH}/{bad.generation}/verify")
    assert [fault["code"] for fault in told["faults"]] == ["artifact_canary"]
    other = library.place.of_year(9, watermark=109, version="old")
    told = await library.post(f"{PATH}/{other.generation}/verify")
    assert [fault["code"] for fault in told["faults"]] == ["artifact_other_model"]
    with moved_away(bucket / third.generation):
        told = await library.post(f"{PATH}/{third.generation}/verify")
        assert not told["ok"]
    assert list((library.place.folder / "cache-one" / ".verify").iterdir()) == []
    assert {lease.reader for lease in library.place.shelf().leases()} == {"one", "two"}
    assert (await library.get(PATH))["current"] == library.entries[1].generation


async def test_swap_and_rollback_reach_every_replica(library: Library) -> None:
    first, second, third = library.entries
    told = await library.post(f"{PATH}/{third.generation}/promote?wait_s=60")
    assert (told["generation"], told["previous"], told["complete"]) == (third.generation, second.generation, True)
    assert sorted(told["served_by"]) == ["one", "two"] and told["behind"] == [] and told["trouble"] is None
    older = await library.post(f"{PATH}/{first.generation}/promote", 409)
    assert older["error"]["code"] == "artifact_older" and "--back" in older["error"]["hint"]
    told = await library.post(f"{PATH}/{first.generation}/promote?back=true&wait_s=60")
    assert told["complete"] and told["generation"] == first.generation
    told = await library.post(f"{PATH}/rollback?wait_s=60&reason=it+is+too+old")
    assert (told["generation"], told["previous"], told["complete"]) == (third.generation, first.generation, True)
    listed = {one["generation"]: one for one in (await library.get(PATH))["artifacts"]}
    assert listed[first.generation]["withdrawn"] == "it is too old"
    refused = await library.post(f"{PATH}/{first.generation}/promote", 409)
    assert refused["error"]["code"] == "artifact_withdrawn" and "--back" in refused["error"]["hint"]
    journal = library.place.journal("artifact_rolled_back")
    assert [(one["generation"], one["to"], one["by"]) for one in journal] == [
        (first.generation, third.generation, "admin")
    ]


async def test_an_artifact_that_cannot_be_served_is_told_at_once(library: Library) -> None:
    second, third = library.entries[1:]
    missing = library.place.bucket / "main.notes" / third.generation / "rows.arrow"
    with moved_away(missing):
        told = await library.post(f"{PATH}/{third.generation}/promote?wait_s=60")
        assert not told["complete"] and told["trouble"]["reason"] and len(told["behind"]) == 2
        health = await library.get("/v1/health")
        assert health["status"] == "degraded" and "rows.arrow" in health["reason"]
        (shelf,) = health["parts"]["search"]["degraded_shelves"]
        assert (shelf["shelf"], shelf["generation"]) == ("notes", second.generation)
        assert shelf["trouble"]["generation"] == third.generation and shelf["trouble"]["since"]
        status = await library.get("/v1/status")
        (search,) = status["search"]
        assert search["state"] == "degraded" and status["status"] == "degraded"
        metrics = (await library.one.http.get("/metrics")).text
        values = {
            sample.name: sample.value
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name.startswith("frazil_search") and sample.labels["shelf"] == "notes"
        }
        assert values["frazil_search_degraded"] == 1 and values["frazil_search_swaps_total"] == 1
        assert values["frazil_search_artifact_age_seconds"] >= 0
    await library.serves(third)
    health = await library.get("/v1/health")
    assert health["status"] == "ok" and health["parts"]["search"] == {"status": "ok", "shelves": 1}


async def test_who_may_see_and_who_may_change(library: Library) -> None:
    generation = library.entries[1].generation
    words: dict[str, list[Any]] = {
        "whole": ["read:notes"],
        "some rows": [{"scope": "read:notes", "where": "year = 1"}],
        "masked": [{"scope": "read:notes", "mask": ["body"]}],
        "writer": ["ingest:notes"],
        "another": ["read:orders"],
    }
    seen = {}
    for name, grants in words.items():
        _, secret = library.one.gateway.access.tokens.create(name, parse_grants(grants), created_by="admin")
        headers = {"authorization": f"Bearer {secret}"}
        http: httpx.AsyncClient = library.one.http
        reads = [(await http.get(path, headers=headers)).status_code for path in (PATH, f"{PATH}/{generation}")]
        changes = [
            (await http.post(path, headers=headers)).status_code
            for path in (f"{PATH}/rollback", f"{PATH}/{generation}/promote", f"{PATH}/{generation}/verify")
        ]
        seen[name] = (reads, changes)
    nothing = [403, 403, 403]
    assert seen == {
        "whole": ([200, 200], nothing),
        "some rows": ([403, 403], nothing),
        "masked": ([403, 403], nothing),
        "writer": ([404, 404], nothing),
        "another": ([404, 404], nothing),
    }


async def test_the_shelf_of_a_profile(library: Library) -> None:
    fast = Profile("fast", "main.notes", index={"kind": "flat"})
    Profiles(library.place.lake.registry).put(fast)
    Profiles(library.place.lake.registry).put(Profile("other", "main.orders"))
    entry = library.place.of_year(7, name=fast.shelf)
    told = await library.post(f"{PATH}/{entry.generation}/promote?profile=fast&wait_s=5")
    assert (told["table"], told["profile"], told["complete"]) == ("notes", "fast", True)
    listed = await library.get(f"{PATH}?profile=fast")
    assert [one["generation"] for one in listed["artifacts"]] == [entry.generation]
    assert (await library.post(f"{PATH}/{entry.generation}/verify?profile=fast"))["ok"]
    for name in ("none", "other"):
        missing = await library.one.http.get(f"{PATH}?profile={name}")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "profile_not_found")


async def test_a_gateway_without_search_says_so(gateway: Running) -> None:
    await gateway.http.post("/v1/tables", json=NOTES)
    told = await gateway.http.get(PATH)
    assert (told.status_code, told.json()["error"]["code"]) == (503, "no_search")
    assert (await gateway.http.get("/v1/status")).json()["search"] == []
