"""Flushing: which files and folders are asked to be on the disk before a commit may name them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frazil.storage import sync_files


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def test_files_and_the_folders_that_name_them(tmp_path: Path, synced: list[str]) -> None:
    """The folder of a partition is named by its encoded value, and that is its name on the disk."""
    (tmp_path / "a%2Fb c").mkdir()
    for name in ("a%2Fb c/one", "a%2Fb c/two", "three"):
        (tmp_path / name).write_text(name)
    urls = [f"file://{tmp_path}/a%2Fb c/one", f"file:{tmp_path}/a%2Fb c/two", str(tmp_path / "three")]
    assert sync_files(urls) == 3
    for name in ("a%2Fb c/one", "a%2Fb c/two", "three", "a%2Fb c"):
        assert str(tmp_path / name) in synced
    assert str(tmp_path) in synced


def test_folders_up_to_the_one_that_was_there_before(tmp_path: Path, synced: list[str]) -> None:
    """A first commit makes folders in folders, and each is named by the one above it."""
    (tmp_path / "table/data/day=1/kind=2").mkdir(parents=True)
    (tmp_path / "table/data/day=1/kind=2/f").write_text("x")
    sync_files([f"file://{tmp_path}/table/data/day=1/kind=2/f"], below=f"file://{tmp_path}/table")
    for name in ("table/data/day=1/kind=2", "table/data/day=1", "table/data", "table"):
        assert str(tmp_path / name) in synced
    assert str(tmp_path) not in synced


def test_an_object_store_does_this_itself(synced: list[str]) -> None:
    assert sync_files(["s3://bucket/x"]) == 0 and synced == []


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_files([str(tmp_path / "nothing")])


def test_many_files_are_flushed_as_well(tmp_path: Path, synced: list[str]) -> None:
    """More than are flushed one after the other: each file, its folder, and the folder that names that."""
    paths = [tmp_path / f"day={number}" / "rows" for number in range(40)]
    for path in paths:
        path.parent.mkdir()
        path.write_text("rows")
    assert sync_files([str(path) for path in paths], below=str(tmp_path)) == 40
    expected = {str(path) for path in paths} | {str(path.parent) for path in paths} | {str(tmp_path)}
    assert set(synced) == expected and len(synced) == len(expected)
    with pytest.raises(FileNotFoundError):
        sync_files([*map(str, paths), str(tmp_path / "gone")])
