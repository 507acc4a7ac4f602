"""When a table is built by itself, by a clock that the test moves; and the hourly clean-up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from frazil.lake.catalog import Lake
from frazil.registry import finish_job, open_jobs
from frazil.requests import BUILD
from frazil.serving import Profiles, SearchSettings, parse_profile
from frazil.serving.artifacts import ShelfCleanup, clear_shelves
from frazil.serving.builds import BuildTrigger
from frazil.serving.index_choice import choose_index
from frazil.serving.vectors.config import IndexConfig
from tests.lake.staging import append
from tests.pipeline.embeddings.place import NOTES
from tests.serving.builds.yard import Yard


class Clock:
    """Looks by the timer, and what it asks for."""

    def __init__(self, yard: Yard, **settings: float) -> None:
        self.yard = yard
        self.now = datetime.now(UTC)
        given = {"build_seconds": 900, "build_after_rows": 50, **settings}
        self.timer = BuildTrigger(yard.lake, SearchSettings.model_validate(given))

    def after(self, seconds: float) -> list[tuple[str, str | None]]:
        self.now += timedelta(seconds=seconds)
        self.timer.poll(self.now)
        return [(job.subject, job.params["profile"]) for job in open_jobs(self.yard.lake.registry, [BUILD.name])]

    def do(self, *, fail: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for job in open_jobs(self.yard.lake.registry, [BUILD.name]):
            result = {"state": "failed"} if fail else self.yard.builds.run(job, lambda progress: None)
            finish_job(self.yard.lake.registry, job, {"state": "done", **result})
            found.append(result)
        # The artifact was made at the real time.
        self.now = max(self.now, datetime.now(UTC))
        return found


NOTES_ONLY = [("main.notes", None)]


@pytest.fixture
def yard(lake: Lake, tmp_path: Path) -> Yard:
    found = Yard(lake, tmp_path)
    found.place.declare()
    return found


def test_the_first_rows_are_built_soon_and_later_ones_at_the_cadence(yard: Yard) -> None:
    clock = Clock(yard)
    assert clock.after(10) == [], "there is nothing yet"
    append(yard.lake, "main.notes", [{"body": "One."}])
    assert clock.after(10) == NOTES_ONLY
    assert clock.after(2000) == NOTES_ONLY, "one at a time"
    (told,) = clock.do()
    assert told["built"]
    assert clock.after(2000) == [], "nothing is new"
    append(yard.lake, "main.notes", [{"body": "Two."}])
    clock = Clock(yard)
    assert clock.after(10) == [] and clock.after(600) == []
    assert clock.after(400) == NOTES_ONLY
    assert clock.do()[0]["rows"] == 2


def test_many_new_rows_or_commits_do_not_wait(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])
    yard.build()
    append(yard.lake, "main.notes", [{"body": f"Row {n}."} for n in range(49)])
    assert Clock(yard).after(10) == []
    assert Clock(yard, build_after_commits=2).after(10) == []
    append(yard.lake, "main.notes", [{"body": "And another."}])
    assert Clock(yard, build_after_rows=0).after(10) == []
    assert Clock(yard, build_after_rows=0, build_seconds=0, build_after_commits=1).after(10) == [], "never by itself"
    assert Clock(yard, build_after_rows=0, build_after_commits=2).after(10) == NOTES_ONLY
    assert Clock(yard).after(10) == NOTES_ONLY


def test_much_of_an_entity_is_told_by_its_history(yard: Yard) -> None:
    columns = {"id": "long", "title": "string", "body": "string"}
    yard.place.declare(name="things", kind="entity", key=["id"], columns=columns)
    append(yard.lake, "main.things__history", [{"id": n, "body": "A thing.", "_op": "upsert"} for n in range(5)])
    clock = Clock(yard, build_after_rows=4)
    assert clock.after(10) == [("main.things", None)]
    clock.do()
    append(yard.lake, "main.things__history", [{"id": 1, "body": "Changed.", "_op": "upsert"} for _ in range(3)])
    assert clock.after(10) == [], "three changes are not four"
    append(yard.lake, "main.things__history", [{"id": 1, "_op": "delete"}])
    assert clock.after(10) == [("main.things", None)]
    assert clock.do()[0]["rows"] == 4
    assert clock.after(5000) == []


def test_a_build_that_fails_is_asked_for_again_each_time_later(yard: Yard) -> None:
    clock = Clock(yard)
    append(yard.lake, "main.notes", [{"body": f"Row {n}."} for n in range(100)])
    assert clock.after(10) == NOTES_ONLY
    for wait in (900, 1800, 3600):
        clock.do(fail=True)
        assert clock.after(wait - 10) == []
        assert clock.after(20) == NOTES_ONLY
    clock.do()
    assert clock.after(100) == []
    append(yard.lake, "main.notes", [{"body": "New."}])
    assert clock.after(1000) == NOTES_ONLY, "it went well, and the cadence is what it was"


def test_shelves_of_profiles_are_built_too_and_so_is_a_chosen_index(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])
    profiles = Profiles(yard.lake.registry)
    profiles.put(parse_profile("exact", {"table": "notes", "index": {"kind": "flat"}}))
    profiles.put(parse_profile("plain", {"table": "notes", "k": 3}))
    profiles.put(parse_profile("lost", {"table": "nowhere", "index": {"kind": "flat"}}))
    clock = Clock(yard)
    assert clock.after(10) == [("main.notes", None), ("main.notes", "exact")]
    clock.do()
    assert clock.after(2000) == []
    choose_index(yard.lake.registry, "main.notes", "wordllama", IndexConfig("hnsw"), "a trial")
    assert clock.after(2000) == NOTES_ONLY
    assert clock.do()[0]["index"]["vector"]["kind"] == "hnsw"
    assert clock.after(2000) == []


def test_what_was_rolled_back_is_not_built_again_before_something_changes(yard: Yard) -> None:
    for text in ("One.", "Two."):
        append(yard.lake, "main.notes", [{"body": text}])
        yard.build()
    yard.shelf().rollback("it is bad")
    clock = Clock(yard)
    assert clock.after(5000) == []
    append(yard.lake, "main.notes", [{"body": "Three."}])
    assert clock.after(5000) == NOTES_ONLY


def test_the_clean_up_comes_every_hour_and_leaves_what_can_come_back(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])
    profiles = Profiles(yard.lake.registry)
    profiles.put(parse_profile("exact", {"table": "notes", "index": {"kind": "flat"}}))
    for profile in (None, "exact"):
        yard.build(profile=profile)
    noted: list[tuple[str, str]] = []
    kept = yard.folder / "builds" / "kept"
    tidier = ShelfCleanup(yard.lake, SearchSettings(), kept, lambda kind, **words: noted.append((kind, words["table"])))
    now = datetime.now(UTC)
    yard.lake.drop("main.notes")
    tidier.poll(now)
    assert noted == [] and yard.current() is not None, "a dropped table can be brought back"
    yard.lake.undrop("main.notes")
    profiles.delete("exact")
    tidier.poll(now + timedelta(minutes=50))
    assert yard.current("main.notes@exact") is not None
    tidier.poll(now + timedelta(minutes=70))
    assert noted == [("artifacts_cleared", "main.notes@exact")]
    assert yard.current("main.notes@exact") is None and yard.current() is not None
    assert [folder.name for folder in kept.iterdir()] == ["main.notes"]
    assert not list(yard.shelf("main.notes@exact").objects.list("main.notes@exact/"))


def test_a_purge_takes_the_artifacts_of_that_very_table(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "Old."}])
    yard.build()
    old = yard.lake.table("main.notes").uuid
    for name in ("main.notes", "main.notes__embeddings", "main.notes__embeddings__quarantine"):
        yard.lake.drop(name)
    yard.place.declare(**NOTES)
    append(yard.lake, "main.notes", [{"body": "New."}, {"body": "Newer."}])
    told = yard.build()
    assert clear_shelves(yard.lake, "main.notes", old) == 1
    assert [entry.generation for entry in yard.shelf().register().entries] == [told["generation"]]
    assert {row["body"] for row in yard.fetched().rows} == {"New.", "Newer."}
    assert clear_shelves(yard.lake, "main.notes", old) == 0


def test_another_declaration_of_search_is_a_reason_too(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"title": "A title.", "body": "A body."}])
    clock = Clock(yard)
    clock.after(10)
    clock.do()
    assert clock.after(2000) == []
    yard.lake.alter("main.notes", lambda spec: replace(spec, description="Other words."))
    assert clock.after(2000) == [], "that says nothing of search"
    yard.lake.alter("main.notes", lambda spec: replace(spec, text=("body",)))
    assert clock.after(2000) == NOTES_ONLY
    clock.do()
    assert [text for _, _, text in yard.fetched().vectors] == ["A body."]
    assert clock.after(2000) == []
