"""Where the vectors come from, models side by side, and what stands beside a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from frazil.embedding import ModelSettings
from frazil.errors import FrazilError, InvalidInput
from frazil.lake.catalog import Lake, plan_purge
from frazil.lake.derived import drop_embeddings, read_trials, undrop_embeddings
from frazil.lake.derived.trials import trials_table
from frazil.requests import EvalQuestion
from frazil.serving import Profile, Profiles, SearchSettings
from frazil.serving.artifacts import ArtifactModel, ArtifactRefused, ArtifactSource, SourceState, open_shelf
from frazil.serving.artifacts.parts import IndexPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.index_choice import chosen_index
from frazil.serving.trials import find_best, forget, parse_best
from frazil.serving.trials.dataset import from_rows, take
from frazil.serving.trials.eval_set import hit_rate, mean_reciprocal_rank, ranks
from frazil.serving.vectors.config import IndexConfig
from tests.pipeline.embeddings.place import Place
from tests.serving.artifacts.samples import SCHEMA, chunk_batches, chunks_of, row_batches, vector_blocks
from tests.serving.trials.place import TrialPlace


def published(lake: Lake, folder: Path, rows: int = 900, *, shelf: str = "main.notes", model: str = "wordllama") -> str:
    """An artifact of made-up vectors on the shelf, current; its generation."""
    source = ArtifactSource(
        table=shelf,
        cut=SourceState("stream", 1 << 20, snapshot_id=77, table_id="uuid-1"),
        schema=SCHEMA,
        rows=row_batches(rows),
        chunks=chunk_batches(rows),
        vectors=vector_blocks(chunks_of(rows)),
        model=ArtifactModel(model, "9", 8),
        index={"kind": "flat"},
    )
    manifest = write_artifact(source, folder, [IndexPart(IndexConfig("flat"))])
    opened = open_shelf(lake.registry, lake.warehouse, shelf, SearchSettings())
    opened.publish(folder)
    opened.promote(manifest.generation)
    return manifest.generation


def test_the_vectors_of_the_current_artifact_are_tried(own: TrialPlace, tmp_path: Path) -> None:
    generation = published(own.lake, tmp_path / "built")
    given = [{"vector": row.tolist()} for row in next(vector_blocks(20, seed=3, size=20))]
    told = own.tried(grid=["flat", "pq"], eval_set=given)
    assert (told["source"], told["generation"], told["snapshot_id"]) == ("artifact", generation, 77)
    assert told["vectors"] == told["of_vectors"] == chunks_of(900) and told["dims"] == 8
    assert [trial["state"] for trial in told["trials"]] == ["ok", "ok"]
    other = own.tried(grid=["flat"], eval_set=given, max_vectors=1000)
    assert other["vectors"] == 1000 < other["of_vectors"]
    with pytest.raises(FrazilError) as caught:
        own.tried(grid=["flat"], eval_set=["some text"])
    assert caught.value.code == "model_moved", "the artifact is of another version of the model"


def test_an_artifact_that_is_damaged_is_not_tried(own: TrialPlace, tmp_path: Path) -> None:
    generation = published(own.lake, tmp_path / "built", rows=100)
    (vectors,) = tmp_path.glob(f"warehouse/**/{generation}/vectors.npy")
    content = bytearray(vectors.read_bytes())
    content[-1] ^= 1
    vectors.chmod(0o600)
    vectors.write_bytes(bytes(content))
    with pytest.raises(ArtifactRefused):
        own.tried(grid=["flat"])


def test_documents_belong_to_their_vectors(own: TrialPlace, tmp_path: Path) -> None:
    table = own.lake.table("main.notes")
    dataset = from_rows(own.lake, table, table.name, "wordllama", tmp_path / "a", max_vectors=10_000, seed=0)
    stored = {(row["document"], row["text"]): row["vector"] for row in Place(own.lake).vectors()}
    assert len(dataset) == len(stored)
    for document, text, vector in zip(dataset.documents, dataset.texts, dataset.vectors, strict=True):
        assert np.allclose(stored[document, text], vector, atol=1e-6)
    published(own.lake, tmp_path / "built", rows=50)
    shelf = open_shelf(own.lake.registry, own.lake.warehouse, "main.notes", SearchSettings())
    of_artifact = take(own.lake, table, shelf, "wordllama", tmp_path / "b", max_vectors=10_000, seed=0)
    pieces = [(row, number) for row in range(50) if row % 5 for number in range(2 - row % 2)]
    assert of_artifact.documents == [f"id-{row}" for row, _ in pieces]


def test_a_chunk_that_was_embedded_twice_counts_once_as_it_is_now(own: TrialPlace, tmp_path: Path) -> None:
    place = Place(own.lake)
    place.add([{"_id": "d00000", "body": "Another text altogether, about boats and their keels.", "_seq": 5 << 20}])
    place.embed()
    table = own.lake.table("main.notes")
    dataset = from_rows(own.lake, table, table.name, "wordllama", tmp_path, max_vectors=10_000, seed=0)
    assert len(dataset) < len(place.vectors())
    assert "Another text altogether, about boats and their keels." in dataset.texts


def test_models_are_compared_by_what_they_find(own: TrialPlace) -> None:
    place = Place(own.lake, {"second": ModelSettings()})
    place.embed(model="second", shadow=True)
    job = own.ask(models=["wordllama", "second"], queries=20, k=3)
    doer = own.doer({"second": ModelSettings()})
    told = doer.run(job, lambda progress: None)
    first, second = told["models"]
    assert (first["model"], second["model"]) == ("wordllama", "second")
    assert first["state"] == second["state"] == "ok"
    assert first["hit_rate"] == second["hit_rate"] > 0.5, "the same weights under two names"
    assert 0 < first["mrr"] <= first["hit_rate"]
    rows = own.journal()
    assert [(row["purpose"], row["model"]) for row in rows] == [("model", "wordllama"), ("model", "second")]
    assert doer.run(job, lambda progress: None)["models"] == told["models"] and len(own.journal()) == 2


def test_models_cannot_be_compared_without_vectors_or_without_a_wanted_document(own: TrialPlace) -> None:
    for wanted, code in (({"eval_set": ["text"]}, "nothing_expected"), ({}, "model_not_found")):
        models = ["wordllama", "second"]
        if code == "nothing_expected":
            Place(own.lake, {"second": ModelSettings()}).embed(model="second", shadow=True)
        else:
            models = ["wordllama", "third"]
        with pytest.raises(FrazilError) as caught:
            own.tried(models=models, **wanted)
        assert caught.value.code == code


def test_places_are_of_documents_not_of_chunks() -> None:
    documents = ["a", "a", "b", "c", "b"]
    found = np.array([[0, 1, 2], [3, 4, -1], [2, 0, 1]])
    places = ranks(found, documents, [("b",), ("a", "zz"), ()])
    assert places == [2, 0] and hit_rate(places) == 0.5 and mean_reciprocal_rank(places) == 0.25
    assert hit_rate([]) is None and mean_reciprocal_rank([]) is None
    assert EvalQuestion(text="x").expected == ()


def test_the_best_is_promoted_and_forgotten(own: TrialPlace, tmp_path: Path) -> None:
    published(own.lake, tmp_path / "built")
    given = [{"vector": row.tolist()} for row in next(vector_blocks(20, seed=3, size=20))]
    own.tried(grid=["flat", {"kind": "pq", "sub_dims": 1}], eval_set=given)
    registry = own.lake.registry
    told = find_best(own.lake, "main.notes", parse_best({"rule": "smallest with recall >= 1"}))
    assert told["config"] == {"kind": "flat"} and not told["promoted"] and told["considered"] == 2
    assert chosen_index(registry, "main.notes", "wordllama") is None and told["chosen"] is None
    find_best(own.lake, "main.notes", parse_best({"recall": 1, "by": "size", "promote": True}))
    choice = chosen_index(registry, "main.notes", "wordllama")
    assert choice is not None and choice.index == IndexConfig("flat") and "smallest with recall >= 1" in choice.because
    assert forget(own.lake, "main.notes")["forgotten"] == {"kind": "flat"}
    assert chosen_index(registry, "main.notes", "wordllama") is None
    assert forget(own.lake, "main.notes")["forgotten"] is None
    published(own.lake, tmp_path / "larger", rows=4000)
    with pytest.raises(FrazilError) as caught:
        find_best(own.lake, "main.notes", parse_best({}))
    assert caught.value.code == "no_trials", "four times as much data is other data"


def test_a_profile_with_a_shelf_of_its_own_has_its_own_trials(own: TrialPlace, tmp_path: Path) -> None:
    Profiles(own.lake.registry).put(Profile("fast", "main.notes", index={"kind": "pq"}))
    published(own.lake, tmp_path / "built", shelf="main.notes@fast")
    given = [{"vector": [1.0] * 8}]
    assert own.tried(grid=["flat"], eval_set=given, profile="fast")["shelf"] == "main.notes@fast"
    find_best(own.lake, "main.notes", parse_best({"profile": "fast", "promote": True}))
    assert chosen_index(own.lake.registry, "main.notes@fast", "wordllama") is not None
    assert chosen_index(own.lake.registry, "main.notes", "wordllama") is None
    Profiles(own.lake.registry).put(Profile("other", "main.orders"))
    with pytest.raises(InvalidInput):
        own.tried(profile="other")


def test_trials_are_dropped_brought_back_and_purged_with_their_table(own: TrialPlace) -> None:
    own.tried(grid=["flat"], queries=10)
    rows = own.journal()
    drop_embeddings(own.lake, "main.notes")
    assert trials_table(own.lake, "main.notes") is None and read_trials(own.lake, "main.notes") == []
    undrop_embeddings(own.lake, "main.notes")
    assert own.journal() == rows
    drop_embeddings(own.lake, "main.notes")
    own.lake.drop("main.notes")
    assert any("notes__trials" in str(purge.body()) for purge in plan_purge(own.lake, "main.notes"))
