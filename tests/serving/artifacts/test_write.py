"""A build is all of the table's rows, chunks and vectors, proven by what was written, or it is nothing."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from frazil.errors import FrazilError, InvalidInput, Misconfigured
from frazil.serving.artifacts import MANIFEST, Manifest, decode_manifest, workplace
from frazil.serving.artifacts.canaries import nearest
from frazil.serving.artifacts.contents import CHUNKS, ROWS, VECTORS, BuildRefused, Contents
from frazil.serving.artifacts.manifest import Canary, ManifestUnreadable, Vectors, new_generation
from frazil.serving.artifacts.parts import DUCKDB, DuckPart
from frazil.serving.artifacts.parts.part import OpenPart
from frazil.serving.artifacts.verify import verify_artifact
from frazil.serving.artifacts.write import write_artifact
from tests.serving.artifacts.exact_part import ExactPart
from tests.serving.artifacts.samples import (
    DIMS,
    PARTS,
    SCHEMA,
    TABLE,
    chunk_batches,
    chunks_of,
    row_batches,
    source,
    vector_blocks,
)

ROWS_IN = 137


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("built") / "one"
    return folder, write_artifact(source(ROWS_IN), folder, PARTS)


def test_what_went_in_is_there(built: tuple[Path, Manifest]) -> None:
    folder, manifest = built
    contents = Contents(folder)
    assert contents.rows.equals(pa.Table.from_batches(row_batches(ROWS_IN)))
    assert contents.chunks.equals(pa.Table.from_batches(chunk_batches(ROWS_IN)))
    given = np.concatenate(list(vector_blocks(chunks_of(ROWS_IN))))
    np.testing.assert_allclose(contents.vectors, given / np.linalg.norm(given, axis=1, keepdims=True), rtol=1e-6)
    counts = manifest.counts
    assert counts.rows == ROWS_IN and counts.chunks == counts.vectors == chunks_of(ROWS_IN)
    assert counts.documents == sum(1 for row in range(ROWS_IN) if row % 5)
    assert {file.path for file in manifest.files} == {ROWS, CHUNKS, VECTORS, DUCKDB}
    assert decode_manifest((folder / MANIFEST).read_bytes()) == manifest
    assert {"contents", "hash", "exact", "duckdb"} == manifest.seconds.keys()
    assert manifest.canaries and manifest.engines["duckdb"] == duckdb.__version__
    assert verify_artifact(folder, table=TABLE, generation=manifest.generation, parts=PARTS) == manifest


def test_rows_are_read_where_they_lie(built: tuple[Path, Manifest]) -> None:
    contents = Contents(built[0])
    before = pa.total_allocated_bytes()
    assert contents.rows.column("body").chunk(0).buffers()[2].size > 0
    assert pa.total_allocated_bytes() == before
    assert contents.take_rows([5, 0, 136, 5]).column("_id").to_pylist() == ["id-5", "id-0", "id-136", "id-5"]
    assert contents.take_rows([3], ["title"]).to_pylist() == [{"title": "title 3"}]
    assert contents.take_rows([]).num_rows == 0
    assert contents.read_chunks([1], ["document"]) == contents.chunks.select([0]).to_pylist()[1:2]
    for wrong in (-1, ROWS_IN):
        with pytest.raises(IndexError):
            contents.take_rows([0, wrong])


def test_rows_of_many_batches_are_taken_in_the_order_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.serving.artifacts.contents._BATCH_ROWS", 10)
    write_artifact(source(ROWS_IN), tmp_path / "a")
    contents = Contents(tmp_path / "a")
    assert contents.rows.column("_id").num_chunks > 5
    numbers = [136, 0, 70, 13, 14, 13, 99]
    assert contents.take_rows(numbers).column("_seq").to_pylist() == numbers
    assert contents.take_rows(numbers, ["title"]).column_names == ["title"]
    assert contents.take_rows([]).schema == SCHEMA


def test_the_duckdb_file_has_rows_and_chunks_by_number(built: tuple[Path, Manifest]) -> None:
    with duckdb.connect(str(built[0] / DUCKDB), read_only=True) as connection:
        rows = connection.execute("SELECT _document, _id, body FROM rows ORDER BY _document").fetchall()
        joined = connection.execute(
            "SELECT count(*), count(DISTINCT ordinal), max(ordinal) FROM chunks JOIN rows ON document = _document"
        ).fetchone()
    assert [(number, f"id-{number}") for number in range(ROWS_IN)] == [(number, name) for number, name, _ in rows]
    assert joined == (chunks_of(ROWS_IN), chunks_of(ROWS_IN), chunks_of(ROWS_IN) - 1)


def with_vectors(number: int, spoil: Callable[[Vectors], Vectors]) -> list[Vectors]:
    blocks = list(vector_blocks(number))
    blocks[1] = spoil(blocks[1].copy())
    return blocks


def set_first(value: float) -> Callable[[Vectors], Vectors]:
    def spoil(block: Vectors) -> Vectors:
        block[0, 0] = value
        return block

    return spoil


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda block: block[1:], "vectors_missing"),
        (lambda block: np.concatenate([block, block[:1]]), "vectors_missing"),
        (lambda block: block[:, 1:], "bad_vector"),
        (lambda block: block.reshape(-1), "bad_vector"),
        (lambda block: block * 0, "bad_vector"),
        (set_first(np.nan), "bad_vector"),
        (set_first(np.inf), "bad_vector"),
        (set_first(3e38), "bad_vector"),
    ],
)
def test_vectors_that_do_not_fit_fail_the_build(tmp_path: Path, spoil: Callable[[Vectors], Vectors], code: str) -> None:
    with pytest.raises(BuildRefused) as refused:
        write_artifact(source(vectors=with_vectors(chunks_of(40), spoil)), tmp_path / "a", PARTS)
    assert refused.value.code == code
    assert list((tmp_path / "a").iterdir()) == []


def test_chunks_in_quarantine_have_no_vector_and_are_counted(tmp_path: Path) -> None:
    counts = write_artifact(source(quarantined=3), tmp_path / "a", PARTS).counts
    assert (counts.chunks, counts.vectors, counts.quarantined) == (chunks_of(40), chunks_of(40) - 3, 3)
    verify_artifact(tmp_path / "a", table=TABLE, parts=PARTS)


def test_a_chunk_of_no_row_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildRefused) as refused:
        write_artifact(dataclasses.replace(source(), chunks=chunk_batches(60)), tmp_path / "a")
    assert refused.value.code == "chunk_of_no_row"


def test_rows_of_other_columns_fail_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildRefused):
        write_artifact(dataclasses.replace(source(), schema=pa.schema([("a", pa.int8())])), tmp_path / "a")


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_small_tables(tmp_path: Path, rows: int) -> None:
    manifest = write_artifact(source(rows), tmp_path / "a", PARTS)
    assert manifest.counts.rows == rows
    assert Contents(tmp_path / "a").rows.num_rows == rows
    verify_artifact(tmp_path / "a", table=TABLE, parts=PARTS)


def test_a_table_that_is_searched_by_words_only(tmp_path: Path) -> None:
    words_only = dataclasses.replace(source(), model=None, vectors=())
    manifest = write_artifact(words_only, tmp_path / "a", [DuckPart()])
    assert manifest.counts.vectors == 0 and manifest.counts.chunks == chunks_of(40)
    assert verify_artifact(tmp_path / "a", table=TABLE, parts=[DuckPart()]) == manifest
    assert Contents(tmp_path / "a").vectors.shape == (0, 0)


def test_equal_vectors_make_no_canary(tmp_path: Path) -> None:
    """All are at the same place: none is first for a reason."""
    same = [np.ones((chunks_of(40), DIMS), dtype=np.float32)]
    assert write_artifact(source(vectors=same), tmp_path / "a", PARTS).canaries == ()


def test_canaries_are_the_truth(built: tuple[Path, Manifest]) -> None:
    vectors = np.asarray(Contents(built[0]).vectors, dtype=np.float64)
    for canary in built[1].canaries:
        scores = vectors @ canary.as_vector().astype(np.float64)
        assert tuple(np.argsort(-scores)[: len(canary.expected)]) == canary.expected


def test_nearest_takes_the_lower_ordinal_at_a_tie() -> None:
    vectors = np.array([[0, 1], [1, 0], [1, 0], [0.5, 0.5]], dtype=np.float32)
    ordinals, scores = nearest(vectors, vectors[1], 3)
    assert ordinals.tolist() == [1, 2, 3] and scores.tolist() == [1.0, 1.0, 0.5]


@dataclasses.dataclass(frozen=True)
class Forgetful(ExactPart):
    """A part that loses a vector, does not find one, or does not open."""

    name: str = "forgetful"
    loses: bool = True
    breaks: bool = False

    def open(self, folder: Path) -> OpenPart:
        if self.breaks:
            raise RuntimeError("as engines do")
        opened = super().open(folder)
        return _Forgetful(opened, self.loses)


class _Forgetful:
    def __init__(self, opened: OpenPart, loses: bool) -> None:
        self._opened = opened
        self.held = opened.held - loses

    def answer(self, canary: Canary) -> tuple[int, ...]:
        return self._opened.answer(canary)[::-1]

    def close(self) -> None:
        self._opened.close()


@pytest.mark.parametrize(("loses", "code"), [(True, "part_incomplete"), (False, "canary_failed")])
def test_a_part_that_does_not_hold_or_find_everything_fails_the_build(tmp_path: Path, loses: bool, code: str) -> None:
    with pytest.raises(BuildRefused) as refused:
        write_artifact(source(), tmp_path / "a", [*PARTS, Forgetful(loses=loses)])
    assert refused.value.code == code
    assert list((tmp_path / "a").iterdir()) == []


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(InvalidInput):
        write_artifact(source(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_memory_does_not_grow_with_the_vectors(tmp_path: Path) -> None:
    """200 MB of vectors pass through a process that may not have as much again."""
    script = """
import resource, sys
from pathlib import Path
import numpy as np
from frazil.serving.artifacts.manifest import ArtifactModel
from frazil.serving.artifacts.write import write_artifact
from tests.serving.artifacts.exact_part import ExactPart
from tests.serving.artifacts.samples import source, chunk_batches
import dataclasses, pyarrow as pa
from frazil.serving.artifacts import CHUNK_SCHEMA
N, D = 52_000, 1024
def chunks():
    for at in range(0, N, 4000):
        zeros = np.zeros(4000, dtype=np.int32)
        yield pa.record_batch([zeros.astype(np.int64), zeros, zeros, zeros, ["x"] * 4000], schema=CHUNK_SCHEMA)
def vectors():
    random = np.random.default_rng(1)
    for at in range(0, N, 2000):
        yield random.standard_normal((2000, D), dtype=np.float32)
given = dataclasses.replace(source(), chunks=chunks(), vectors=vectors(), model=ArtifactModel("m", "1", D))
def anonymous():
    return int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1]) >> 10
before = anonymous()
import threading, time
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.005):
        peak = max(peak, anonymous())
watcher = threading.Thread(target=watch); watcher.start()
write_artifact(given, Path(sys.argv[1]), [ExactPart()])
done.set(); watcher.join()
print(peak - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a")], check=True, capture_output=True, text=True, timeout=120
    )
    assert int(done.stdout) < 120, f"{done.stdout.strip()} MB more than before, for 208 MB of vectors"


_BUILD = """
import sys
from pathlib import Path
from frazil.serving.artifacts import workplace
from frazil.serving.artifacts.write import write_artifact
from tests.serving.artifacts.samples import PARTS, source
with workplace(Path(sys.argv[1])) as folder:
    write_artifact(source(), folder, PARTS)
"""
_POINTS = ["build_contents_written", "build_part_written", "build_part_written:2", "build_before_manifest"]


def test_what_killed_builders_leave_is_no_artifact_and_goes(tmp_path: Path) -> None:
    left: Sequence[Path] = ()
    for point in _POINTS:
        killed = subprocess.run(
            [sys.executable, "-c", _BUILD, str(tmp_path)], env={**os.environ, "FRAZIL_CRASH_AT": point}, timeout=60
        )
        assert killed.returncode == -9
        (left,) = [list(tmp_path.iterdir())]
        assert len(left) == 1, "the one before was removed by this one"
        with pytest.raises(FrazilError) as refused:
            verify_artifact(left[0], table=TABLE)
        assert refused.value.code == "artifact_manifest_missing"
    with workplace(tmp_path) as mine, workplace(tmp_path) as other:
        assert sorted(tmp_path.iterdir()) == sorted([mine, other]), "what is at work is not touched"
    assert list(tmp_path.iterdir()) == []


def test_manifests_of_the_future_are_refused(built: tuple[Path, Manifest]) -> None:
    for raw, code in [
        (dataclasses.replace(built[1], format=2).encode(), "artifact_format"),
        (b"{}", "artifact_format"),
        (b"[]", "artifact_manifest_damaged"),
        (b"\xff", "artifact_manifest_damaged"),
        (built[1].encode()[:-40], "artifact_manifest_damaged"),
    ]:
        with pytest.raises(ManifestUnreadable) as refused:
            decode_manifest(raw)
        assert refused.value.code == code


def test_generations_are_unique_and_sort_by_time() -> None:
    names = [new_generation() for _ in range(500)]
    assert len(set(names)) == 500
    assert [name.partition("-")[0] for name in names] == sorted(name.partition("-")[0] for name in names)


def test_an_index_of_vss_is_built_and_asked(tmp_path: Path) -> None:
    part = DuckPart(dims=DIMS, vss=True)
    try:
        import duckdb_extension_vss  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(Misconfigured, match="vss"):
            write_artifact(source(), tmp_path / "a", [part])
        return
    manifest = write_artifact(source(), tmp_path / "a", [part])
    assert {canary.part for canary in manifest.canaries} == {"duckdb"}
    assert verify_artifact(tmp_path / "a", table=TABLE, parts=[part]) == manifest
