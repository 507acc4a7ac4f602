"""Vectors that an earlier build kept are not read again, and it makes no difference to what is built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from frazil.events.declaration import embeddings_of
from frazil.lake.catalog import Lake
from frazil.lake.derived import delete_embeddings
from frazil.serving.builds.kept_vectors import newest
from frazil.storage import local_path
from tests.lake.staging import append
from tests.pipeline.embeddings.place import NOTES
from tests.serving.builds.yard import Held, Yard


@pytest.fixture
def yard(lake: Lake, tmp_path: Path) -> Yard:
    found = Yard(lake, tmp_path)
    found.place.declare()
    append(lake, "main.notes", [{"_id": f"n{n}", "body": f"Text number {n}."} for n in range(30)])
    return found


def same(one: Held, other: Held) -> None:
    assert one.rows == other.rows
    assert one.vectors.keys() == other.vectors.keys()
    for name, vector in one.vectors.items():
        np.testing.assert_array_equal(vector, other.vectors[name])


def fully(yard: Yard, tmp_path: Path) -> Held:
    """The same table built by one who kept nothing."""
    stranger = Yard(yard.lake, tmp_path / "stranger")
    assert stranger.build(force=True)["vectors_kept"] == 0
    return stranger.fetched()


def test_only_new_vectors_are_read_from_the_bucket(yard: Yard, tmp_path: Path) -> None:
    first = yard.build()
    assert (first["vectors_kept"], first["vectors_read"]) == (0, 30)
    old = yard.vector_files()
    append(yard.lake, "main.notes", [{"_id": f"m{n}", "body": f"And text {n}."} for n in range(4)])
    yard.place.embed()
    for path in old:
        local_path(path).rename(local_path(path).with_suffix(".away"))
    told = yard.build()
    assert (told["vectors_kept"], told["vectors_read"], told["vectors"]) == (30, 4, 34)
    incremental = yard.fetched()
    for path in old:
        local_path(path).with_suffix(".away").rename(local_path(path))
    same(incremental, fully(yard, tmp_path))


def test_only_one_generation_is_kept(yard: Yard) -> None:
    for number in range(3):
        append(yard.lake, "main.notes", [{"body": f"More {number}."}])
        told = yard.build()
        kept = yard.folder / "builds" / "kept" / "main.notes"
        assert [path.name for path in kept.iterdir()] == [told["generation"]]


@pytest.mark.parametrize("damage", ["flip", "truncate", "lose", "empty"])
def test_what_was_kept_and_is_damaged_is_not_used(yard: Yard, tmp_path: Path, damage: str) -> None:
    yard.build()
    folder = newest(yard.folder / "builds" / "kept" / "main.notes")
    assert folder is not None
    path = folder / "vectors.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()
    if damage == "flip":
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-4])
    elif damage == "empty":
        (folder / "kept.json").write_bytes(b"")
    told = yard.build(force=True)
    assert (told["vectors_kept"], told["vectors_read"]) == (0, 30)
    same(yard.fetched(), fully(yard, tmp_path))


def test_a_chunk_that_says_again_what_it_said_before_is_found(lake: Lake, tmp_path: Path) -> None:
    yard = Yard(lake, tmp_path)
    columns = {"id": "long", "title": "string", "body": "string"}
    yard.place.declare(**{**NOTES, "kind": "entity", "key": ["id"], "columns": columns})

    def write(*texts: str) -> dict[str, object]:
        rows = [{"id": n, "body": text, "_op": "upsert"} for n, text in enumerate(texts)]
        append(lake, "main.notes__history", rows)
        return yard.build()

    write("Alpha.", "Beta.")
    write("Gamma.", "Beta.")
    asked = yard.embeddings_asked
    told = write("Alpha.", "Delta.")
    assert yard.embeddings_asked == asked + 1
    assert (told["vectors_kept"], told["vectors_read"], told["vectors"]) == (0, 2, 2)
    same(yard.fetched(), fully(yard, tmp_path))


def test_after_a_sweep_or_another_table_of_vectors_all_are_read(yard: Yard, tmp_path: Path) -> None:
    yard.build()
    yard.place.embed(sweep=True)
    assert yard.build(force=True)["vectors_kept"] == 0
    assert yard.build(force=True)["vectors_kept"] == 30
    delete_embeddings(yard.lake, "main.notes", "wordllama")
    assert yard.lake.table(embeddings_of("main.notes")).rows == 0
    assert yard.build(force=True)["vectors_kept"] == 0
    same(yard.fetched(), fully(yard, tmp_path))


def test_two_rows_of_one_name_and_text_share_a_vector(yard: Yard, tmp_path: Path) -> None:
    """An id that comes again after its window is another row."""
    yard.place.add([{"_id": "twin", "body": "Said twice."}, {"_id": "twin", "body": "Said twice."}])
    yard.place.add([{"_id": "n1", "body": "Text number 1."}, {"_id": "twin", "body": "Other."}])
    told = yard.build()
    assert (told["rows"], told["chunks"], told["vectors"]) == (34, 34, 34)
    held = yard.fetched()
    texts = held.contents.chunks["text"].to_pylist()
    for text in ("Said twice.", "Text number 1."):
        first, second = (at for at, found in enumerate(texts) if found == text)
        np.testing.assert_array_equal(held.contents.vectors[first], held.contents.vectors[second])
    same(held, fully(yard, tmp_path))
