"""A build of a real table: what is in the artifact, and when there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from frazil.embedding import ModelSettings, open_model
from frazil.errors import FrazilError, InvalidInput, NotFound, Unavailable
from frazil.lake.catalog import Lake, LakeTable
from frazil.registry import Job, finish_job, open_jobs, submit_job
from frazil.serving import Profiles, parse_profile
from frazil.serving.builds import BuildServices
from frazil.serving.index_choice import choose_index
from frazil.serving.vectors.config import IndexConfig
from tests.embedding.server import DIMS, refusing, serving
from tests.lake.staging import append
from tests.pipeline.embeddings.place import NOTES
from tests.serving.builds.yard import Yard, manifest_of

LONG = "The river rose in the night and took the bridge. Nobody slept. In the morning the ferry was gone as well."


@pytest.fixture
def yard(lake: Lake, tmp_path: Path) -> Yard:
    found = Yard(lake, tmp_path)
    found.place.declare()
    return found


def test_an_artifact_holds_what_sql_says_of_its_snapshot(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"title": f"Note {n}", "body": f"{LONG} {n}"} for n in range(40)])
    yard.place.add([{"_id": "loaded", "title": "Loaded", "body": "In bulk."}, {"_id": "empty", "title": None}])
    told = yard.build()
    table = yard.lake.table("main.notes")
    files = [task.file.file_path.removeprefix("file://") for task in table.iceberg.scan().plan_files()]
    expected = duckdb.sql(f"SELECT * FROM read_parquet({files}, union_by_name=true)").to_arrow_table().to_pylist()
    held = yard.fetched()
    by_id = {row["_id"]: row for row in held.rows}
    assert len(by_id) == len(held.rows) == len(expected) == told["rows"] == 42
    for row in expected:
        assert {name: by_id[row["_id"]][name] for name in ("_seq", "title", "body")} == {
            name: row[name] for name in ("_seq", "title", "body")
        }
    stored = {(row["document"], row["chunk"], row["text"]): row["vector"] for row in yard.place.vectors()}
    assert held.vectors.keys() == stored.keys() and len(stored) == told["chunks"] == told["vectors"] > 80
    for name, vector in held.vectors.items():
        np.testing.assert_allclose(vector, stored[name], atol=1e-6)
    model = open_model("wordllama")
    assert held.manifest.model is not None and held.manifest.model.version == model.version
    cut = held.manifest.cut
    assert (cut.snapshot_id, cut.watermark, cut.stream) == (table.snapshot_id, table.watermark, "i")
    assert {"rows.arrow", "vectors.npy", "rows.duckdb", "index.json"} <= {file.path for file in held.manifest.files}
    assert yard.announced == [("main.notes", told["generation"])] and told["is_current"]


def test_nothing_new_is_not_built_again(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])
    first = yard.build()
    again = yard.build()
    assert (again["built"], again["generation"]) == (False, first["generation"])
    assert yard.embeddings_asked == 1, "nor is it embedded"
    forced = yard.build(force=True)
    assert forced["built"] and forced["generation"] > first["generation"]
    assert [entry.state.value for entry in yard.shelf().register().entries] == ["previous", "current"]


@pytest.mark.parametrize("what", ["rows", "index", "text", "column", "vss"])
def test_whatever_changes_makes_another_artifact(yard: Yard, what: str, lake: Lake, tmp_path: Path) -> None:
    append(yard.lake, "main.notes", [{"title": "A", "body": f"Row {n}."} for n in range(3)])
    first = yard.build()
    if what == "rows":
        append(yard.lake, "main.notes", [{"body": "Another."}])
    elif what == "index":
        choose_index(lake.registry, "main.notes", "wordllama", IndexConfig("hnsw"), "a trial")
    elif what == "text":
        lake.alter("main.notes", lambda spec: _with(spec, text=["body"]))
    elif what == "column":
        lake.alter("main.notes", lambda spec: _with(spec, columns={**NOTES["columns"], "more": "long"}))
    else:
        yard = Yard(lake, tmp_path, yard.settings.model_copy(update={"duckdb_vss": True}))
    second = yard.build()
    assert second["built"] and second["generation"] != first["generation"]
    assert not yard.build()["built"]


def _with(spec: Any, **changed: Any) -> Any:
    from frazil.events.declaration import parse_table

    return parse_table({**spec.declared(), **changed})


def test_an_entity_is_folded_first_and_deleted_keys_are_not_in_it(yard: Yard) -> None:
    yard.lake.drop("main.notes")
    spec = {**NOTES, "kind": "entity", "key": ["id"], "columns": {"id": "long", "title": "string", "body": "string"}}
    yard.place.declare(**spec)
    write = [{"id": n, "title": "T", "body": f"Text of {n}.", "_op": "upsert"} for n in range(5)]
    append(yard.lake, "main.notes__history", write)
    yard.build()
    assert sorted(row["id"] for row in yard.fetched().rows) == [0, 1, 2, 3, 4]
    append(
        yard.lake,
        "main.notes__history",
        [{"id": 1, "_op": "delete"}, {"id": 2, "title": "T", "body": "Other words.", "_op": "upsert"}],
    )
    told = yard.build()
    held = yard.fetched()
    assert {row["id"]: row["body"] for row in held.rows} == {
        0: "Text of 0.",
        2: "Other words.",
        3: "Text of 3.",
        4: "Text of 4.",
    }
    assert sorted(text for _, _, text in held.vectors) == sorted(
        ["T\n\nText of 0.", "T\n\nOther words.", "T\n\nText of 3.", "T\n\nText of 4."]
    )
    base, history = yard.lake.table("main.notes"), yard.lake.table("main.notes__history")
    cut = held.manifest.cut
    assert (cut.base_snapshot_id, cut.folded_watermark, cut.watermark) == (
        base.snapshot_id,
        history.watermark,
        history.watermark,
    )
    assert cut.stream == history.stream_identity and told["vectors_kept"] == 3
    append(yard.lake, "main.notes__history", [{"id": n, "_op": "delete"} for n in range(5)])
    assert yard.build()["rows"] == 0
    assert yard.fetched().rows == []


def test_what_is_in_quarantine_is_told_and_comes_back_with_its_vector(lake: Lake, tmp_path: Path) -> None:
    with serving() as server:
        server.behaviour = refusing(lambda text: "refused" in text)
        settings = ModelSettings(provider="openai", url=server.url, model="tiny", dims=DIMS, batch=4, retries=0)
        yard = Yard(lake, tmp_path, models={"remote": settings})
        yard.place.declare(search={**NOTES["search"], "model": "remote"})
        append(lake, "main.notes", [{"body": "Good."}, {"body": "This is refused."}, {"body": "Good too."}])
        told = yard.build()
        assert (told["chunks"], told["vectors"], told["quarantined"]) == (3, 2, 1)
        assert yard.fetched().without == ["This is refused."]
        server.behaviour = None
    with serving() as server:
        settings = settings.model_copy(update={"url": server.url})
        yard.place.models = {"remote": settings}
        yard.place.embed(retry=True)
        told = yard.build()
        assert told["built"] and (told["vectors"], told["quarantined"]) == (3, 0)


def test_vectors_of_the_users(lake: Lake, tmp_path: Path) -> None:
    yard = Yard(lake, tmp_path)
    columns = {"title": "string", "v": "list<float>"}
    yard.place.declare(columns=columns, text=[], search={"vector": "v"})
    append(lake, "main.notes", [{"_id": "a", "v": [3, 4]}, {"_id": "b", "v": [0, 2]}, {"_id": "c", "v": None}])
    told = yard.build()
    assert (told["model"], told["dims"], told["vectors"], told["quarantined"]) == ("own", 2, 2, 1)
    held = yard.fetched()
    np.testing.assert_allclose(held.vectors["a", 0, ""], [0.6, 0.8], atol=1e-6)
    assert not (held.folder / "text").exists(), "there is no text to index"


def test_a_profile_with_a_model_of_its_own_has_a_shelf_of_its_own(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])
    with serving() as server:
        settings = ModelSettings(provider="openai", url=server.url, model="tiny", dims=DIMS, batch=4, retries=0)
        yard.place.models = {"remote": settings}
        profile = parse_profile("far", {"table": "notes", "model": "remote", "index": {"kind": "flat"}})
        Profiles(yard.lake.registry).put(profile)
        told = yard.build(profile="far")
        assert (told["shelf"], told["model"], told["dims"]) == ("notes@far", "remote", DIMS)
    assert yard.current() is None and yard.current("main.notes@far") is not None
    assert yard.lake.table("main.notes").spec.searched.model == "wordllama"  # type: ignore[union-attr]
    assert manifest_of(yard.shelf("main.notes@far"), yard.current("main.notes@far")).index["vector"] == {"kind": "flat"}  # type: ignore[arg-type]


def test_embedding_that_fails_is_the_failure_of_the_build(lake: Lake, tmp_path: Path) -> None:
    settings = ModelSettings(provider="openai", url="http://127.0.0.1:9/v1", model="tiny", dims=DIMS, retries=0)
    yard = Yard(lake, tmp_path, models={"remote": settings})
    yard.place.declare(search={"model": "remote"})
    append(lake, "main.notes", [{"body": "One."}])
    with pytest.raises(FrazilError) as failed:
        yard.build()
    assert "could not be embedded" in failed.value.message and not failed.value.transient
    assert yard.current() is None and yard.embeddings_asked == 1


def test_a_table_that_is_not_searched_is_refused(yard: Yard) -> None:
    yard.place.declare(name="plain", text=[], search=None)
    with pytest.raises(InvalidInput, match="no text to search"):
        yard.build("plain")
    with pytest.raises(NotFound):
        yard.build("nothing")
    with pytest.raises(NotFound):
        yard.build(profile="nobody")
    assert yard.build()["because"] == "the table has no rows yet"


def test_a_snapshot_of_before_is_built_where_rows_never_stop(yard: Yard) -> None:
    """Each embedding is overtaken by another commit; what it has embedded is built."""
    append(yard.lake, "main.notes", [{"_id": "first", "body": "First."}])
    embed = yard.embed

    def overtaken(table: Any, model: str) -> Any:
        job = embed(table, model)
        append(yard.lake, "main.notes", [{"body": "Later."}])
        return job

    yard.builds.services = type(yard.builds.services)(yard.fold, overtaken, yard.say)
    told = yard.build()
    assert told["rows"] == 1 and [row["_id"] for row in yard.fetched().rows] == ["first"]
    table = yard.lake.table("main.notes")
    assert told["snapshot_id"] != table.snapshot_id and told["watermark"] < table.watermark


def test_a_build_that_waits_for_its_vectors_lets_others_go_first(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])
    waiting: list[Job] = []

    def only_ask(table: LakeTable, model: str) -> Job:
        waiting.append(submit_job(yard.lake.registry, "embed", table.name, {"table": table.name}))
        return waiting[-1]

    yard.builds.services = BuildServices(yard.fold, only_ask, yard.say)
    yard.builds.turn_seconds = 0.0
    other = yard.ask("others")
    told = yard.build()
    assert (told["built"], told["complete"]) == (False, False)
    finish_job(yard.lake.registry, other, {"state": "done"})
    (rest,) = open_jobs(yard.lake.registry, ["build"])
    assert rest.id == told["continued_by"] and rest.params["embedding"] == waiting[0].id
    finish_job(yard.lake.registry, waiting[0], {"state": "done", **yard.place.embed()})
    assert yard.builds.run(rest, lambda progress: None)["built"]
    assert len(waiting) == 1, "it is not asked for twice"


def test_a_build_that_waits_is_cancelled_with_its_pipeline(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])
    yard.builds.services = BuildServices(
        yard.fold, lambda table, model: submit_job(yard.lake.registry, "embed", table.name, {}), yard.say
    )
    yard.builds.cancel()
    with pytest.raises(Unavailable, match="was cancelled") as cancelled:
        yard.build()
    assert cancelled.value.code == "build_given_up"


def test_servers_that_cannot_be_told_are_no_failure(yard: Yard) -> None:
    append(yard.lake, "main.notes", [{"body": "One."}])

    def dumb(shelf: str, generation: str) -> None:
        raise Unavailable("no bus")

    yard.builds.services = BuildServices(yard.fold, yard.embed, dumb)
    assert yard.build()["is_current"]


def test_a_cancelled_build_is_done_by_the_same_handler_later(yard: Yard) -> None:
    """A runner that begins again cancels the handlers that its successor goes on with."""
    append(yard.lake, "main.notes", [{"_id": "a", "body": "One."}])
    job = yard.ask()
    yard.builds.cancel()
    with pytest.raises(Unavailable) as cancelled:
        yard.builds.run(job, lambda progress: None)
    assert cancelled.value.code == "build_given_up" and yard.current() is None
    assert yard.builds.run(job, lambda progress: None)["built"]
