"""A text index as files: complete, and never opened when they are damaged."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from frazil.errors import DataLoss
from frazil.serving.text import TextLayout
from frazil.serving.text.index_files import DESCRIPTION, build, open_text
from tests.serving.sentences import sentences


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    report = build(TextLayout(("body",)), ({"body": text} for text in sentences()[:500]), folder)
    assert {path.name for path in folder.iterdir()} == set(report.files)
    assert report.rows == 500
    return folder


def test_an_index_of_nothing(tmp_path: Path) -> None:
    build(TextLayout(("body",)), [], tmp_path)
    index = open_text(tmp_path)
    assert index.rows == 0 and index.search("tea NOT cake", 3)[1].tolist() == []
    assert index.average_length("body") == 1.0


def test_reading_leaves_the_folder_as_it_is(built: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in built.iterdir()}
    assert len(open_text(built).search("the", 5)[1]) == 5
    assert {path.name: path.stat().st_mtime_ns for path in built.iterdir()} == before


def test_missing_and_truncated_files_are_named(built: Path, tmp_path: Path) -> None:
    for at, name in enumerate(path.name for path in built.iterdir()):
        folder = shutil.copytree(built, tmp_path / str(at))
        whole = (folder / name).read_bytes()
        if whole:
            (folder / name).write_bytes(whole[: len(whole) // 2])
            with pytest.raises(DataLoss, match="is damaged") as refused:
                open_text(folder)
            assert refused.value.code == "text_damaged"
        (folder / name).unlink()
        with pytest.raises(DataLoss, match="missing"):
            open_text(folder)


def test_flipped_bits_are_found_before_the_engine_reads_them(built: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(built, tmp_path / "copy")
    rng = random.Random(2)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for _ in range(20 if whole and path.name != DESCRIPTION else 0):
            broken = bytearray(whole)
            broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            path.write_bytes(broken)
            with pytest.raises(DataLoss, match="not what was written") as refused:
                open_text(folder)
            assert refused.value.code == "text_damaged"
        path.write_bytes(whole)
    assert open_text(folder).rows == 500


def test_a_damaged_description_is_refused_or_harmless(built: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(built, tmp_path / "copy")
    rng = random.Random(3)
    whole = (folder / DESCRIPTION).read_bytes()
    refused = 0
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        (folder / DESCRIPTION).write_bytes(broken)
        try:
            open_text(folder).search("return the file", 10)
        except DataLoss:
            refused += 1
    assert refused > len(whole) // 2
