"""Metadata on a local disk is flushed, file and folders, before the catalog points to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from frazil.lake.catalog import Lake
from frazil.lake.catalog.fsync_io import FsyncFileIO
from frazil.storage import local_path
from tests.lake_fixtures import some_table


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def test_a_new_table_is_on_the_disk_with_all_its_folders(lake: Lake, synced: list[str]) -> None:
    table = lake.create(some_table(name="deep.t"), stream="s", identity="i")
    file = local_path(table.metadata_location)
    warehouse = lake.warehouse.folder()
    for path in (file, file.parent, file.parent.parent, warehouse / "deep", warehouse):
        assert str(path) in synced


def test_the_file_is_flushed_before_the_catalog_names_it(
    lake: Lake, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create(some_table(), stream="s", identity="i")
    before = lake.locations()[table.name]
    named: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        named.append(lake.locations()[table.name])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    after = lake.set_properties(table.name, {"a": "b"})
    assert named and set(named) == {before} and after.metadata_location != before


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    io = FsyncFileIO({})
    location = f"file://{tmp_path}/a b/c/file"
    with io.new_output(location).create() as stream:
        stream.write(b"one")
        stream.write(b"two")
    with io.new_input(location).open() as found:
        assert found.read() == b"onetwo"


def test_an_existing_file_is_not_written_over_unasked(tmp_path: Path) -> None:
    io = FsyncFileIO({})
    location = str(tmp_path / "file")
    for content, options in ((b"first", {}), (b"second", {"overwrite": True})):
        with io.new_output(location).create(**options) as stream:
            stream.write(content)
    with pytest.raises(FileExistsError):
        io.new_output(location).create()
    assert (tmp_path / "file").read_bytes() == b"second"


def test_a_disk_that_does_not_take_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> Any:
        raise OSError(28, "No space left on device")

    stream = FsyncFileIO({}).new_output(str(tmp_path / "file")).create()
    stream.write(b"x")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        stream.close()
    assert stream.closed  # type: ignore[attr-defined]
