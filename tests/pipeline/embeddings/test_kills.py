"""An embedding job that is killed anywhere is finished by the next process: no vector is lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from frazil.embedding import ModelSettings
from frazil.lake.catalog import Lake
from frazil.lake.derived import embedded_up_to, embedding_models, embeddings_table, undrop_embeddings
from frazil.registry import job_status
from tests.embedding.server import DIMS, EmbeddingServer, refusing, serving
from tests.kills import address, finished, killed_at
from tests.pipeline.embeddings.embed_probe import PIECE_ROWS, delete_model, do_embed_jobs, drop_beside
from tests.pipeline.embeddings.place import Place, chunk_names

ROWS = 30
REFUSED = [n for n in range(ROWS) if n % 10 == 3]
WAVE = 2 * PIECE_ROWS
"""Rows whose vectors are published together: a piece for each of two cores."""


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with serving() as running:
        running.behaviour = refusing(lambda text: "refused" in text)
        yield running


@pytest.fixture
def place(lake: Lake, server: EmbeddingServer) -> Place:
    settings = ModelSettings(provider="openai", url=server.url, model="tiny", dims=DIMS, batch=4, retries=0)
    found = Place(lake, {"remote": settings}, PIECE_ROWS)
    found.declare()
    texts = [f"Text {n} is refused." if n in REFUSED else f"Text {n}." for n in range(ROWS)]
    found.add([{"_id": f"n{n:02}", "body": text} for n, text in enumerate(texts)])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "lost"),
    [
        ("after_embed_declare", 0),
        ("amid_embed:3", PIECE_ROWS + 4),
        ("before_embed_files_close:3", PIECE_ROWS),
        ("after_embed_tasks:2", WAVE),
        ("before_load_publish:3", WAVE),
        ("after_embed_quarantine_publish:2", WAVE),
        ("after_load_publish:4", 0),
        ("after_embed_publish:2", 0),
        ("after_embed_publish:3", 0),
        ("after_embed_state", 0),
        ("before_embed_cut_over", 0),
    ],
)
def test_a_job_that_is_killed_is_finished_by_the_next_process(
    place: Place, server: EmbeddingServer, point: str, lost: int
) -> None:
    job = place.ask(model="remote")
    words = address(place.lake), dict(place.models)
    killed_at(point, do_embed_jobs, *words)
    for _ in range(2):
        finished(do_embed_jobs, *words)
    told = job_status(place.lake.registry, job.id)
    assert told["state"] == "done" and told["is_of_table"]
    names = chunk_names(place.vectors())
    assert len(names) == len(set(names)) == ROWS - len(REFUSED)
    assert [row["document"] for row in place.refused()] == [f"n{n:02}" for n in REFUSED]
    assert told["chunks"] == told["known"] + told["reused"] + told["embedded"] + told["quarantined"]
    state = embedded_up_to(embeddings_table(place.lake, "main.notes"), "remote")
    assert state is not None and state.snapshot_id == place.lake.table("main.notes").snapshot_id
    # A request with a refused text in it fails as a whole, and is asked again in parts.
    answered = [body["input"] for body in server.asked if not any("refused" in text for text in body["input"])]
    accepted = Counter(text for texts in answered for text in texts)
    assert sum(times > 1 for times in accepted.values()) <= lost, "what was published is not embedded again"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after_embed_forget", "before_load_publish:1", "after_embed_quarantine_publish:1"])
def test_a_retry_that_is_killed_tries_each_refusal_again(place: Place, server: EmbeddingServer, point: str) -> None:
    place.embed(model="remote")
    assert len(place.refused()) == len(REFUSED)
    server.behaviour = refusing(lambda text: "Text 3 is refused" in text)
    job = place.ask(model="remote", retry=True)
    words = address(place.lake), dict(place.models)
    killed_at(point, do_embed_jobs, *words)
    for _ in range(2):
        finished(do_embed_jobs, *words)
    assert job_status(place.lake.registry, job.id)["state"] == "done"
    names = chunk_names(place.vectors())
    assert len(names) == len(set(names)) == ROWS - 1
    assert [row["document"] for row in place.refused()] == ["n03"]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_embed_sweep", "before_load_publish:2", "amid_embed_sweep"])
def test_a_sweep_that_is_killed_is_finished(place: Place, point: str) -> None:
    place.embed(model="remote")
    place.add([{"_id": "n00", "body": "Text 0."}, {"_id": "n03", "body": "Text 3 is refused."}], replace=True)
    job = place.ask(sweep=True)
    words = address(place.lake), dict(place.models)
    killed_at(point, do_embed_jobs, *words)
    for _ in range(2):
        finished(do_embed_jobs, *words)
    assert job_status(place.lake.registry, job.id)["state"] == "done"
    assert [row["document"] for row in place.vectors()] == ["n00"]
    assert [row["document"] for row in place.refused()] == ["n03"]


@pytest.mark.slow
def test_a_deletion_that_is_killed_is_finished(place: Place) -> None:
    place.embed(model="remote", shadow=True)
    words = address(place.lake), "main.notes", "remote"
    killed_at("amid_embed_delete", delete_model, *words)
    finished(delete_model, *words)
    assert place.vectors() == place.refused() == []
    assert embedding_models(place.lake, place.lake.table("main.notes")) == []


@pytest.mark.slow
def test_a_drop_that_is_killed_is_finished_and_undone(place: Place) -> None:
    place.embed(model="remote")
    before = chunk_names(place.vectors())
    words = address(place.lake), "main.notes"
    killed_at("amid_embed_drop", drop_beside, *words)
    finished(drop_beside, *words)
    assert place.lake.names() == ["main.notes"]
    undrop_embeddings(place.lake, "main.notes")
    assert chunk_names(place.vectors()) == before and len(place.refused()) == len(REFUSED)
    assert place.embed()["rows"] == 0
