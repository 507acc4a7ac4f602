"""The class archive makes a start quicker, and never makes it fail."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from frazil.pipeline import class_archive


def java(*options: str) -> str:
    program = shutil.which("java")
    assert program
    done = subprocess.run([program, *options, "-version"], capture_output=True, text=True, timeout=60, check=True)
    return done.stderr


@pytest.fixture
def small_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a JVM that does nothing, in a folder with a space in its name."""
    path = tmp_path / "a folder" / "class_archive.jsa"
    path.parent.mkdir()
    java(f"-XX:ArchiveClassesAtExit={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    monkeypatch.setattr(class_archive, "archive", lambda: path)
    return path


def test_it_is_used(small_archive: Path) -> None:
    loaded = java(*shlex.split(class_archive.java_options()), "-Xlog:cds:stderr")
    assert str(small_archive) in loaded


def test_one_that_is_damaged_or_of_another_java_is_passed_over(small_archive: Path) -> None:
    content = bytearray(small_archive.read_bytes())
    small_archive.chmod(0o600)
    middle = len(content) // 2
    for damage in (slice(middle, middle + 64), slice(0, 64), slice(64, 256)):
        damaged = bytearray(content)
        damaged[damage] = bytes(255 - byte for byte in damaged[damage])
        small_archive.write_bytes(damaged)
        assert "warning" not in java(*shlex.split(class_archive.java_options()))


def test_without_it_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "archive", lambda: tmp_path / "none.jsa")
    assert class_archive.java_options() == ""


def test_set_up_has_made_one() -> None:
    assert class_archive.archive().stat().st_size > 50_000_000
