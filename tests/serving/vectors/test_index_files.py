"""An index as files: written once, not twice, and never opened when they are damaged."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from frazil.errors import DataLoss, InvalidInput
from frazil.serving.vectors import build
from frazil.serving.vectors.config import KINDS, IndexConfig
from frazil.serving.vectors.exact_search import Floats
from frazil.serving.vectors.index_files import CODES, DESCRIPTION, VECTORS, open_index
from tests.serving.sentences import vectors

DIMS = 32


@pytest.fixture(scope="module", params=KINDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    build(IndexConfig(request.param), vectors(DIMS)[:2000], folder, threads=1)
    return folder


def test_vectors_are_stored_once(built: Path) -> None:
    stored = (built / VECTORS).stat().st_size
    assert 2000 * DIMS * 4 <= stored <= 2000 * DIMS * 4 + 256
    if (built / CODES).exists():
        assert b"".join(vectors(DIMS)[7]) not in (built / CODES).read_bytes()
    assert isinstance(open_index(built).vectors, np.memmap)


def test_vectors_that_are_there_already_are_not_written_again(tmp_path: Path) -> None:
    np.save(tmp_path / VECTORS, vectors(DIMS)[:2000])
    before = (tmp_path / VECTORS).stat()
    build(IndexConfig("pq"), np.load(tmp_path / VECTORS, mmap_mode="r"), tmp_path, threads=1)
    after = (tmp_path / VECTORS).stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert open_index(tmp_path).search(vectors(DIMS)[3], 1)[1].tolist() == [[3]]


def test_a_build_repeats_itself(built: Path, tmp_path: Path) -> None:
    config = open_index(built).config
    if config.kind == "hnsw":
        pytest.skip("a graph that several threads link differs from time to time")
    build(config, vectors(DIMS)[:2000], tmp_path, threads=2)
    for path in built.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


@pytest.mark.parametrize("name", [VECTORS, CODES, DESCRIPTION])
def test_a_missing_file_is_named(built: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(built, tmp_path / "copy")
    if not (folder / name).exists():
        pytest.skip("this kind has no codes")
    (folder / name).unlink()
    with pytest.raises(DataLoss, match=rf"{name} is damaged: it is missing") as refused:
        open_index(folder)
    assert refused.value.code == "index_damaged"


@pytest.mark.parametrize("name", [VECTORS, CODES, DESCRIPTION])
@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_not_opened(built: Path, tmp_path: Path, name: str, kept: float) -> None:
    folder = shutil.copytree(built, tmp_path / "copy")
    if not (folder / name).exists():
        pytest.skip("this kind has no codes")
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: int((len(whole) - 2) * kept)])
    with pytest.raises(DataLoss) as refused:
        open_index(folder)
    assert refused.value.code == "index_damaged"


def test_flipped_bits_in_codes_are_found_before_the_engine_reads_them(built: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(built, tmp_path / "copy")
    if not (folder / CODES).exists():
        pytest.skip("this kind has no codes")
    whole = (folder / CODES).read_bytes()
    rng = random.Random(1)
    for at in [*range(64), *(rng.randrange(len(whole)) for _ in range(100))]:
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        (folder / CODES).write_bytes(broken)
        with pytest.raises(DataLoss, match="not what was written"):
            open_index(folder)


def test_flipped_bits_elsewhere_never_end_the_process(built: Path, tmp_path: Path) -> None:
    """Wrong numbers in a vector are for the artifact's hashes to find; here they must only do no harm."""
    folder = shutil.copytree(built, tmp_path / "copy")
    script = tmp_path / "flip.py"
    script.write_text(_FLIP)
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "refused" in done.stdout


_FLIP = """
import random, sys
from pathlib import Path
sys.path.insert(0, "")
import numpy as np
from frazil.errors import FrazilError
from frazil.serving.vectors.index_files import open_index
folder, rng = Path(sys.argv[1]), random.Random(2)
query = np.ones((1, 32), np.float32) / np.sqrt(np.float32(32))
for name in ("vectors.npy", "index.json"):
    whole = (folder / name).read_bytes()
    for at in [*range(min(128, len(whole))), *(rng.randrange(len(whole)) for _ in range(100))]:
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        # A new file each time: to cut a file that is mapped is to pull the rug from under its reader.
        (folder / name).unlink()
        (folder / name).write_bytes(broken)
        try:
            open_index(folder).search(query, 10)
        except FrazilError as refused:
            print("refused", refused.code)
    (folder / name).write_bytes(whole)
"""


def test_files_of_another_index_are_not_opened(built: Path, tmp_path: Path) -> None:
    kind = open_index(built).config.kind
    (tmp_path / "other").mkdir()
    build(IndexConfig(kind), vectors(DIMS)[:1999], tmp_path / "other", threads=1)
    for name in (VECTORS, CODES):
        if not (built / name).exists():
            continue
        folder = shutil.copytree(built, tmp_path / name)
        shutil.copy(tmp_path / "other" / name, folder / name)
        with pytest.raises(DataLoss):
            open_index(folder)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((2, 4), np.float32),
        np.full((2, 4), np.nan, np.float32),
        np.full((2, 4), 3, np.float32),
        np.eye(4, dtype=np.float64),
        np.ones(4, np.float32),
        np.empty((3, 0), np.float32),
    ],
)
def test_vectors_that_cannot_be_right_are_not_indexed(tmp_path: Path, wrong: Floats) -> None:
    with pytest.raises(InvalidInput) as refused:
        build(IndexConfig("flat"), wrong, tmp_path)
    assert refused.value.code == "bad_vectors"
    assert not (tmp_path / DESCRIPTION).exists()
