"""Embedding a table from request to report, on a real lake and with real models; the tasks run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from starlette.responses import Response

from frazil.embedding import ModelSettings, chunked, open_model
from frazil.embedding.chunks import content_hash
from frazil.errors import Conflict, FrazilError, InvalidInput, Misconfigured, Unavailable
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import publish_load
from frazil.lake.catalog import Lake
from frazil.lake.derived import delete_embeddings, embedded_up_to, embedding_models, embeddings_table
from frazil.pipeline.embeddings import handler
from frazil.registry import finish_job, open_jobs, submit_job
from tests.embedding.server import DIMS, EmbeddingServer, answer_to, failing, plain, refusing, serving
from tests.pipeline.embeddings.place import Place, chunk_names

LONG = "The river rose in the night. Nobody slept until the water had gone. In the morning the road was under mud."


@pytest.fixture
def place(lake: Lake) -> Place:
    return Place(lake)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with serving() as running:
        yield running


@pytest.fixture
def asking(lake: Lake, server: EmbeddingServer) -> Place:
    """A place whose model `remote` is the server, four texts at a time."""
    settings = ModelSettings(provider="openai", url=server.url, model="tiny", dims=DIMS, batch=4, retries=0)
    return Place(lake, {"remote": settings})


def asked(server: EmbeddingServer) -> list[str]:
    return [text for body in server.asked for text in body["input"]]


def test_every_chunk_of_a_table_gets_its_vector(place: Place) -> None:
    table = place.declare()
    place.add([{"_id": "a", "title": "Flood", "body": LONG, "_seq": 7}, {"_id": "b", "body": "Short.", "_seq": 8}])
    told = place.embed()
    rows = place.vectors()
    text = f"Flood\n\n{LONG}"
    searched = table.spec.searched
    assert searched is not None
    expected = chunked(text, searched.chunk)
    of_a = [row for row in rows if row["document"] == "a"]
    assert [(row["chunk"], row["start"], row["end"], row["text"]) for row in of_a] == [
        (chunk.number, chunk.start, chunk.end, chunk.text) for chunk in expected
    ]
    assert len(expected) > 1 and all(text[row["start"] : row["end"]] == row["text"] for row in of_a)
    assert [row["hash"] for row in of_a] == [content_hash(chunk.passage) for chunk in expected]
    model = open_model("wordllama")
    np.testing.assert_allclose(
        [row["vector"] for row in of_a], model.embed([chunk.passage for chunk in expected]), atol=1e-6
    )
    assert {(row["model"], row["version"], row["dims"]) for row in rows} == {("wordllama", model.version, model.dims)}
    assert {row["document"]: row["position"] for row in rows} == {"a": 7, "b": 8}
    assert (told["rows"], told["chunks"], told["embedded"], told["quarantined"]) == (2, len(rows), len(rows), 0)
    assert told["looked_at"] == "all rows" and told["is_of_table"] and told["complete"]


def test_again_is_nothing_and_only_new_rows_are_looked_at(place: Place) -> None:
    place.declare()
    place.add([{"body": "One."}, {"body": "Two."}])
    place.embed()
    before = embeddings_table(place.lake, "main.notes")
    again = place.embed()
    after = embeddings_table(place.lake, "main.notes")
    assert before is not None and after is not None and before.metadata_location == after.metadata_location
    assert (again["rows"], again["chunks"], again["published"]) == (0, 0, 0)
    # Rows of a bulk load lie below every position that was there before.
    place.add([{"body": "Three.", "_seq": -(1 << 62) + 5}])
    told = place.embed()
    assert (told["rows"], told["known"], told["embedded"], told["looked_at"]) == (1, 0, 1, "new rows")
    assert sorted(row["text"] for row in place.vectors()) == ["One.", "Three.", "Two."]


def test_expired_snapshots_do_not_make_all_rows_new(place: Place) -> None:
    place.declare()
    for number in range(4):
        place.add([{"body": f"Row {number}."}])
    place.embed()
    for number in range(4, 8):
        table = place.add([{"body": f"Row {number}."}])
    table.iceberg.maintenance.expire_snapshots().by_ids(
        [s.snapshot_id for s in table.iceberg.snapshots() if s.snapshot_id != table.snapshot_id]
    ).commit()
    told = place.embed()
    assert (told["rows"], told["embedded"], told["looked_at"]) == (4, 4, "new rows")
    assert len(place.vectors()) == 8


def test_a_table_that_was_rolled_back_is_looked_at_whole(place: Place) -> None:
    place.declare()
    first = place.add([{"_id": "a", "body": "One."}])
    place.add([{"_id": "b", "body": "Two."}])
    place.embed()
    with place.lake.table("main.notes").iceberg.manage_snapshots() as manage:
        manage.rollback_to_snapshot(first.snapshot_id or 0)
    told = place.embed()
    assert (told["looked_at"], told["rows"], told["known"]) == ("all rows", 1, 1)
    place.add([{"_id": "c", "body": "Three."}])
    told = place.embed()
    assert (told["looked_at"], told["rows"], told["embedded"]) == ("new rows", 1, 1)


def test_a_table_from_a_backup_counts_its_commits_anew(place: Place) -> None:
    place.declare()
    before = place.add([{"_id": "a", "body": "One."}]).metadata_location
    place.add([{"_id": "b", "body": "Two."}])
    place.embed()
    place.lake.catalog.drop_table("main.notes")
    assert place.lake.register("main.notes", before)
    place.add([{"_id": "c", "body": "Three."}])
    told = place.embed()
    assert (told["looked_at"], told["rows"], told["embedded"]) == ("all rows", 2, 1)
    place.add([{"_id": "d", "body": "Four."}])
    assert place.embed()["rows"] == 1


def test_files_that_were_compacted_and_expired_meanwhile_are_looked_for_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first pieces are published, the files of the last ones go; their rows are in another file."""
    place.declare()
    for start in range(0, 40, 10):
        place.add([{"_id": f"n{n:02}", "body": f"Text {n}."} for n in range(start, start + 10)])
    place.piece_rows = 10

    def and_compact(*words: Any, **more: Any) -> Any:
        monkeypatch.setattr(handler, "publish_load", publish_load)
        done = publish_load(*words, **more)
        place.rewrite()
        return done

    monkeypatch.setattr(handler, "publish_load", and_compact)
    told = place.embed()
    names = chunk_names(place.vectors())
    assert len(names) == len(set(names)) == 40 and told["embedded"] == 40
    assert told["known"] == 20, "what was published before is not embedded again"


def test_a_file_that_goes_amid_a_piece_costs_nothing_that_was_paid(asking: Place, server: EmbeddingServer) -> None:
    asking.declare()
    asking.add([{"_id": "a", "body": "One."}])
    asking.add([{"_id": "b", "body": "Two."}])

    async def and_compact(body: dict[str, Any]) -> Response:
        asking.rewrite()
        return await _good(body)

    server.script = [and_compact]
    told = asking.embed(model="remote")
    assert (told["embedded"], told["known"], told["published"]) == (2, 1, 2)
    assert sorted(asked(server)) == ["One.", "Two."] and len(asking.vectors()) == 2


def test_a_long_run_lets_others_go_first(
    asking: Place, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "_TURN_SECONDS", 0.0)
    asking.declare()
    asking.add([{"_id": f"n{n}", "body": f"Text {n}."} for n in range(9)])
    asking.piece_rows = 2
    other = submit_job(asking.lake.registry, "embed", "main.orders", {"table": "orders"})
    first = asking.embed(model="remote")
    assert (first["embedded"], first["complete"]) == (4, False)
    following = next(each for each in open_jobs(asking.lake.registry, ["embed"]) if each.id == first["continued_by"])
    assert _model(asking) == "wordllama", "it is not the table's before all is embedded"
    for done in (other, *(each for each in open_jobs(asking.lake.registry) if each.id != following.id)):
        finish_job(asking.lake.registry, done, {"state": "done"})
    rest = asking.job.run(following, lambda progress: None)
    assert (rest["known"], rest["embedded"], rest["complete"], rest["is_of_table"]) == (4, 5, True, True)
    assert len(asked(server)) == 9


def test_equal_content_is_embedded_once(asking: Place, server: EmbeddingServer) -> None:
    asking.declare()
    asking.add([{"_id": "a", "body": "Same."}, {"_id": "b", "body": "Same."}, {"_id": "c", "body": "Other."}])
    told = asking.embed(model="remote")
    assert asked(server) == ["Same.", "Other."]
    assert (told["embedded"], told["reused"], told["chunks"]) == (2, 1, 3)
    asking.add([{"_id": "d", "body": "Other."}, {"_id": "e", "body": "New."}, {"_id": "f", "body": "Same."}])
    told = asking.embed()
    assert asked(server) == ["Same.", "Other.", "New."] and told["model"] == "remote"
    vectors = {row["document"]: row["vector"] for row in asking.vectors()}
    assert vectors["a"] == vectors["b"] == vectors["f"] != vectors["c"] and vectors["c"] == vectors["d"]


def test_an_entity_is_embedded_as_its_state_is(asking: Place, server: EmbeddingServer) -> None:
    asking.declare(kind="entity", key=["id"], columns={"id": "long", "title": "string", "body": "string"})
    first = [
        {"id": 1, "body": "Old text.", "_seq": 1, "_op": "upsert"},
        {"id": 2, "body": "Stays.", "_seq": 2, "_op": "upsert"},
        {"id": 3, "_seq": 3, "_op": "delete", "body": "Gone."},
    ]
    asking.add(first)
    asking.embed(model="remote")
    assert {row["document"] for row in asking.vectors()} == {'{"id":1}', '{"id":2}'}
    # As a fold does: files are written anew, with rows that changed and rows that did not.
    asking.add([{**first[0], "body": "New text.", "_seq": 9}, first[1]], replace=True)
    server.asked.clear()
    told = asking.embed()
    assert asked(server) == ["New text."] and (told["known"], told["embedded"]) == (1, 1)
    positions = {row["text"]: row["position"] for row in asking.vectors()}
    assert positions == {"Old text.": 1, "Stays.": 2, "New text.": 9}


def test_another_way_of_cutting_looks_at_all_rows_again(place: Place) -> None:
    place.declare()
    place.add([{"_id": "a", "body": LONG}])
    place.embed()
    place.lake.alter("main.notes", lambda spec: _with_chunks(spec, size=200))
    told = place.embed()
    assert told["looked_at"] == "all rows" and told["embedded"] == 1
    assert LONG in [row["text"] for row in place.vectors()]


def _with_chunks(spec: TableSpec, *, size: int) -> TableSpec:
    assert spec.searched is not None
    return replace(spec, search=replace(spec.searched, chunk=replace(spec.searched.chunk, size=size)))


def test_what_has_no_vector_is_in_quarantine_with_its_reason(asking: Place, server: EmbeddingServer) -> None:
    server.behaviour = refusing(lambda text: "too" in text)
    asking.declare()
    asking.add([{"_id": f"a{n}", "body": "This is too long." if n % 3 == 0 else f"Text {n}."} for n in range(9)])
    told = asking.embed(model="remote")
    assert (told["chunks"], told["embedded"], told["quarantined"], told["reasons"]) == (9, 6, 3, {"refused": 3})
    bad = asking.refused()
    assert [(row["document"], row["code"], row["text"]) for row in bad] == [
        (f"a{n}", "refused", "This is too long.") for n in (0, 3, 6)
    ]
    assert all(row["reason"] for row in bad) and len(asking.vectors()) == 6
    # Looked at again it is known, and not asked for again.
    asking.lake.alter("main.notes", lambda spec: _with_chunks(spec, size=70))
    server.asked.clear()
    again = asking.embed()
    assert (again["known"], again["chunks"], asked(server)) == (9, 9, [])
    server.behaviour = None
    retried = asking.embed(retry=True)
    assert (retried["known"], retried["embedded"], retried["reused"]) == (6, 1, 2) and asking.refused() == []


def test_rows_without_text_and_an_empty_table(place: Place) -> None:
    place.declare()
    told = place.embed()
    assert (told["rows"], told["chunks"]) == (0, 0)
    place.add([{"body": None}, {"body": "  "}, {"title": "", "body": ""}])
    told = place.embed()
    assert (told["rows"], told["chunks"]) == (3, 0)
    assert place.embed()["rows"] == 0, "and they are not looked at again"


def test_a_provider_that_falls_silent_keeps_what_it_gave(asking: Place, server: EmbeddingServer) -> None:
    asking.declare()
    asking.add([{"_id": f"n{n:02}", "body": f"Text {n}."} for n in range(20)])
    server.behaviour = failing(503)
    with pytest.raises(Unavailable):
        asking.embed(model="remote")
    assert asking.vectors() == [], "nothing was embedded, nothing is published"
    server.asked.clear()
    server.script = [_good, _good, failing(503)]
    with pytest.raises(Unavailable) as error:
        asking.embed(model="remote")
    assert error.value.code == "model_unavailable"
    kept = asking.vectors()
    assert len(kept) == 8
    table = embeddings_table(asking.lake, "main.notes")
    assert embedded_up_to(table, "remote") is None
    server.asked.clear()
    server.behaviour = None
    told = asking.embed(model="remote")
    assert (told["known"], told["embedded"]) == (8, 12) and len(asked(server)) == 12
    names = chunk_names(asking.vectors())
    assert len(names) == 20 == len(set(names))


async def _good(body: dict[str, Any]) -> Response:
    return plain(answer_to(body["input"]))


def test_a_key_that_is_refused_is_said(asking: Place, server: EmbeddingServer) -> None:
    server.key = "another"
    asking.declare()
    asking.add([{"body": "Text."}])
    with pytest.raises(Misconfigured) as error:
        asking.embed(model="remote")
    assert error.value.code == "model_key_refused"


def test_many_pieces_are_published_apart_and_add_up(asking: Place, server: EmbeddingServer) -> None:
    asking.declare()
    for start in range(0, 50, 10):
        asking.add([{"_id": f"n{n:02}", "body": f"Text {n}."} for n in range(start, start + 10)])
    asking.piece_rows = 4
    told = asking.embed(model="remote")
    assert told["published"] == 8 and (told["rows"], told["embedded"]) == (50, 50)
    names = chunk_names(asking.vectors())
    assert len(set(names)) == len(names) == 50
    assert len(asked(server)) == 50


def test_own_vectors_are_taken_and_judged(place: Place) -> None:
    columns = {"title": "string", "body": "string", "embedding": "list<float>"}
    place.declare(columns=columns, search={"vector": "embedding"})
    good = {"a": [3.0, 4.0], "b": [0.0, -2.0]}
    bad: dict[str, Any] = {"c": [1.0, 2.0, 3.0], "d": [float("nan"), 1.0], "e": [0.0, 0.0], "f": None, "g": [None, 1.0]}
    place.add([{"_id": name, "body": f"Row {name}.", "embedding": vector} for name, vector in (good | bad).items()])
    told = place.embed()
    assert (told["model"], told["dims"], told["embedded"], told["quarantined"]) == ("own", 2, 2, 5)
    assert {row["document"]: row["vector"] for row in place.vectors()} == {
        "a": pytest.approx([0.6, 0.8]),
        "b": [0.0, -1.0],
    }
    assert {row["document"]: row["code"] for row in place.refused()} == {
        "c": "wrong_dimension",
        "d": "not_finite",
        "e": "zero",
        "f": "missing",
        "g": "not_finite",
    }
    place.add([{"_id": "h", "embedding": [1.0, 0.0, 0.0]}, {"_id": "i", "embedding": [5.0, 0.0]}])
    told = place.embed()
    assert (told["embedded"], told["quarantined"]) == (1, 1), "the table's dimensions are those of its first vector"
    with pytest.raises(Conflict):
        place.embed(model="wordllama")
    shadow = place.embed(model="wordllama", shadow=True)
    assert (shadow["embedded"], shadow["is_of_table"]) == (7, False)


def test_models_side_by_side_then_cut_over_then_the_old_one_goes(asking: Place) -> None:
    asking.declare()
    asking.add([{"_id": "a", "body": "One."}, {"_id": "b", "body": "Two."}])
    asking.embed()
    told = asking.embed(model="remote", shadow=True)
    assert not told["is_of_table"] and _model(asking) == "wordllama"
    models = {found["model"]: found for found in embedding_models(asking.lake, asking.lake.table("main.notes"))}
    assert {name: (found["vectors"], found["dims"]) for name, found in models.items()} == {
        "remote": (2, DIMS),
        "wordllama": (2, 256),
    }
    assert all(found["last_run_at"] and found["is_up_to_date"] for found in models.values())
    told = asking.embed(model="remote")
    assert told["embedded"] == 0 and told["is_of_table"] and _model(asking) == "remote"
    assert delete_embeddings(asking.lake, "main.notes", "wordllama") == 2
    assert {row["model"] for row in asking.vectors()} == {"remote"}
    assert delete_embeddings(asking.lake, "main.notes", "wordllama") == 0
    again = asking.embed(model="wordllama", shadow=True)
    assert again["embedded"] == 2, "what was deleted is made again when it is asked for"


def _model(place: Place) -> str:
    searched = place.lake.table("main.notes").spec.searched
    assert searched is not None
    return searched.model


def test_an_entity_is_cut_over_with_its_history(asking: Place) -> None:
    asking.declare(kind="entity", key=["id"], columns={"id": "long", "title": "string", "body": "string"})
    asking.add([{"id": 1, "body": "Text.", "_seq": 1, "_op": "upsert"}])
    asking.embed(model="remote")
    history = asking.lake.table("main.notes__history").spec.searched
    assert _model(asking) == "remote" and history is not None and history.model == "remote"


def test_vectors_that_another_published_meanwhile_are_not_doubled(asking: Place, server: EmbeddingServer) -> None:
    asking.declare()
    asking.add([{"_id": "a", "body": "One."}])

    async def meanwhile(body: dict[str, Any]) -> Response:
        """While this one waits for the provider, its zombie does the same job."""
        server.script = [_good]
        await asyncio.to_thread(asking.embed, model="remote")
        return await _good(body)

    server.script = [meanwhile]
    with pytest.raises(Unavailable) as error:
        asking.embed(model="remote")
    assert error.value.code == "embeddings_moved"
    assert len(asking.vectors()) == 1 and asking.embed()["known"] + asking.embed()["rows"] == 0


def test_a_sweep_leaves_the_chunks_of_today(asking: Place, server: EmbeddingServer) -> None:
    server.behaviour = refusing(lambda text: "bad" in text)
    asking.declare(kind="entity", key=["id"], columns={"id": "long", "title": "string", "body": "string"})
    rows = [{"id": n, "body": f"Text {n}.", "_seq": n, "_op": "upsert"} for n in range(20)]
    bad = [{"id": n, "body": f"A bad text {n}.", "_seq": n, "_op": "upsert"} for n in (20, 21)]
    asking.add([*rows, *bad])
    asking.embed(model="remote")
    asking.embed(model="wordllama", shadow=True)
    asking.add([*({**row, "body": f"Other {row['id']}."} for row in rows[:5]), *rows[5:15], bad[0]], replace=True)
    server.asked.clear()
    asking.piece_rows = 4
    told = asking.embed(sweep=True)
    assert (told["embedded"], told["swept"]) == (5, 10), "five changed and five went"
    assert [text for text in asked(server) if "bad" not in text] == [f"Other {n}." for n in range(5)]
    texts = [row["text"] for row in asking.vectors() if row["model"] == "remote"]
    assert sorted(texts) == sorted([f"Other {n}." for n in range(5)] + [f"Text {n}." for n in range(5, 15)])
    assert [row["text"] for row in asking.refused()] == ["A bad text 20."]
    assert sum(row["model"] == "wordllama" for row in asking.vectors()) == 22, "another model keeps what it has"
    assert asking.embed()["rows"] == 0
    assert asking.embed(sweep=True)["swept"] == 0


@pytest.mark.parametrize(
    ("declared", "options"),
    [
        ({"text": [], "search": None}, {}),
        ({"kind": "bulk"}, {}),
        ({}, {"model": "own"}),
        ({}, {"model": "Not a name"}),
        ({}, {"shadow": True}),
        ({}, {"modle": "x"}),
        ({}, {"shadow": "yes", "model": "wordllama"}),
    ],
)
def test_what_cannot_be_embedded_is_refused(place: Place, declared: dict[str, Any], options: dict[str, Any]) -> None:
    place.declare(**declared)
    with pytest.raises(InvalidInput):
        place.embed(**options)


def test_a_model_that_nobody_knows(place: Place) -> None:
    place.declare(search={"model": "nonesuch"})
    with pytest.raises(FrazilError) as error:
        place.embed()
    assert error.value.code == "unknown_model"
