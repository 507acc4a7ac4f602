"""The two indexes as parts of an artifact: they know their answers, and what is not whole is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from frazil.errors import DataLoss
from frazil.serving.artifacts import CHUNK_SCHEMA, ArtifactModel, ArtifactRefused, ArtifactSource, Manifest, SourceState
from frazil.serving.artifacts.contents import BuildRefused
from frazil.serving.artifacts.engine_versions import running_engines
from frazil.serving.artifacts.parts import IndexPart, TextPart
from frazil.serving.artifacts.verify import verify_artifact
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.text import TextLayout
from frazil.serving.vectors.config import IndexConfig
from tests.serving.artifacts.samples import TABLE
from tests.serving.sentences import sentences, vectors

ROWS = 2000
DIMS = 64
SCHEMA = pa.schema([("_id", pa.string()), ("body", pa.string())])
TEXT = TextPart(TextLayout(("body",)))


def made(folder: Path, *parts: IndexPart | TextPart, texts: tuple[str, ...] = sentences()[:ROWS]) -> Manifest:
    numbers = range(len(texts))
    rows = pa.Table.from_pydict({"_id": [str(n) for n in numbers], "body": list(texts)}, schema=SCHEMA)
    chunks = pa.Table.from_pylist(
        [{"document": n, "number": 0, "start": 0, "end": len(texts[n]), "text": texts[n]} for n in numbers],
        schema=CHUNK_SCHEMA,
    )
    source = ArtifactSource(
        TABLE,
        SourceState("stream-1", 1, snapshot_id=1),
        SCHEMA,
        rows.to_batches(),
        chunks.to_batches(),
        [vectors(DIMS)[: len(texts)]],
        ArtifactModel("lsa", "1", DIMS),
    )
    return write_artifact(source, folder, parts)


@pytest.mark.parametrize("kind", ["flat", "pq", "ivf", "hnsw"])
def test_the_index_lies_beside_the_vectors(tmp_path: Path, kind: str) -> None:
    part = IndexPart(IndexConfig(kind), threads=1)
    manifest = made(tmp_path / "a", part)
    paths = [file.path for file in manifest.files]
    assert sorted(paths) == sorted({*paths}) and paths.count("vectors.npy") == 1
    assert ("codes.faiss" in paths) == (kind != "flat") and "index.json" in paths
    assert manifest.engines["faiss"] == running_engines()["faiss"]
    assert manifest.canaries and all(canary.part == "index" for canary in manifest.canaries)
    verify_artifact(tmp_path / "a", table=TABLE, parts=[part])
    opened = part.open(tmp_path / "a")
    assert opened.held == ROWS and opened.index.config.kind == kind
    opened.close()


def test_words_are_found_in_rows(tmp_path: Path) -> None:
    manifest = made(tmp_path / "a", TEXT)
    paths = {file.path for file in manifest.files}
    assert {"text/text.json", "text/meta.json", "text/.managed.json", "text/.tantivy-meta.lock"} <= paths
    assert manifest.engines["tantivy"] == running_engines()["tantivy"]
    assert len(manifest.canaries) == 4 and len({canary.expected for canary in manifest.canaries}) == 4
    verify_artifact(tmp_path / "a", table=TABLE, parts=[TEXT])
    verify_artifact(tmp_path / "a", table=TABLE, parts=[TEXT]), "opening it added nothing that does not belong"
    opened = TEXT.open(tmp_path / "a")
    for canary in manifest.canaries:
        (row,) = canary.expected
        asked = canary.words.replace("+body:", "").split()
        assert set(asked) <= set(sentences()[row].split())
    assert opened.held == ROWS


def test_equal_rows_have_no_canary_that_hangs_on_a_tie(tmp_path: Path) -> None:
    manifest = made(tmp_path / "a", TEXT, texts=("the same words in every row",) * 50)
    assert manifest.canaries == ()
    assert made(tmp_path / "b", TEXT, texts=("!?",) * 5).canaries == ()


@pytest.mark.parametrize(
    ("name", "code"),
    [("codes.faiss", "index_damaged"), ("index.json", "index_damaged"), ("text/text.json", "text_damaged")],
)
def test_a_damaged_part_does_not_open(tmp_path: Path, name: str, code: str) -> None:
    index = IndexPart(IndexConfig("pq"), threads=1)
    manifest = made(tmp_path / "a", index, TEXT)
    path = tmp_path / "a" / name
    content = bytearray(path.read_bytes())
    for at in (0, len(content) // 2, len(content) - 2):
        spoilt = bytearray(content)
        spoilt[at] ^= 0x10
        path.write_bytes(spoilt)
        with pytest.raises(ArtifactRefused) as refused:
            verify_artifact(tmp_path / "a", table=TABLE, generation=manifest.generation)
        assert refused.value.code == "artifact_file_hash"
    path.unlink()
    with pytest.raises(DataLoss) as damaged:
        (TEXT if name.startswith("text/") else index).open(tmp_path / "a")
    assert damaged.value.code == code


def test_an_index_that_finds_nothing_of_it_is_not_built(tmp_path: Path) -> None:
    """The words of one artifact under the rows of another."""

    class Elsewhere(TextPart):
        def open(self, folder: Path):  # type: ignore[no-untyped-def]
            return TEXT.open(tmp_path / "other")

    made(tmp_path / "other", TEXT, texts=tuple(f"nothing {n}" for n in range(ROWS)))
    with pytest.raises(BuildRefused) as refused:
        made(tmp_path / "a", Elsewhere(TextLayout(("body",))))
    assert refused.value.code == "canary_failed" and not list((tmp_path / "a").iterdir())

    class Blind(IndexPart):
        def open(self, folder: Path):  # type: ignore[no-untyped-def]
            opened = super().open(folder)
            opened.index._vectors = np.roll(opened.index.vectors, 7, axis=0)
            return opened

    with pytest.raises(BuildRefused) as refused:
        made(tmp_path / "b", Blind(IndexConfig("flat")))
    assert refused.value.code == "canary_failed"
