"""Rows are not trusted: nothing is written outside of the folder, replaced or deleted without being asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from frazil.vault import ExportReport
from frazil.vault.export import export_notes
from frazil.vault.note import parse
from tests.vault.vaults import contents, write


def row(path: Any, body: str = "text\n") -> dict[str, Any]:
    return {"vault": "v", "path": path, "body": body, "front_matter_text": ""}


def exported(root: Path, *rows: dict[str, Any], **words: bool) -> ExportReport:
    return export_notes(rows, root, "v", {}, **words)


@pytest.mark.parametrize(
    "path",
    [
        "../x.md", "a/../../x.md", "/tmp/x.md", "//x.md", "a//b.md", "./a.md", "a/./b.md", "a\0.md", "", None,
        ".git/hooks/x.md", ".obsidian/plugins/p.md", "a/.hidden.md", "run.sh", "a", "CON.md", "a/nul.md", "com1.x.md",
        "x" * 300 + ".md", "/".join(["d" * 200] * 11) + ".md", ".md",
    ],
)  # fmt: skip
def test_paths_that_are_refused(path: Any, tmp_path: Path) -> None:
    report = exported(tmp_path / "out", row(path), row("good.md"))
    assert len(report.refused) == 1 and report.written == 1
    assert contents(tmp_path) == {"out/good.md": b"text\n"}


def test_names_that_are_the_same_on_some_disks_are_refused(tmp_path: Path) -> None:
    rows = [row(path) for path in ("A.md", "a.md", "\u00e9.md", "e\u0301.md", "d.md", "D.md/x.md", "fine.md")]
    report = exported(tmp_path, *rows)
    assert len(report.refused) == 6 and list(contents(tmp_path)) == ["fine.md"]


def test_no_link_is_written_through(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "outside"
    write(tmp_path, {"in/keep.md": "", "outside/a.md": "theirs", "outside/secret.md": "text\n"})
    (inside / "folder").symlink_to(outside)
    (inside / "file.md").symlink_to(outside / "a.md")
    (inside / "same.md").symlink_to(outside / "secret.md")
    report = exported(inside, row("folder/a.md"), row("file.md"), row("same.md"), force=True)
    assert [left.path for left in report.refused] == ["file.md", "folder/a.md", "same.md"]
    assert (outside / "a.md").read_text() == "theirs" and (inside / "file.md").is_symlink()


def test_other_content_stays_unless_forced(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "mine", "b.md": "text\n", "c/x.txt": "other", "big.md": "x" * (2 << 20)})
    rows = row("a.md"), row("b.md"), row("c/n.md"), row("big.md")
    report = exported(tmp_path, *rows)
    assert (report.written, report.unchanged) == (1, 1)
    assert [left.path for left in report.refused] == ["a.md", "big.md"]
    assert (tmp_path / "a.md").read_text() == "mine"
    assert exported(tmp_path, *rows, force=True).written == 2
    assert exported(tmp_path, *rows).unchanged == 4
    assert (tmp_path / "c" / "x.txt").read_text() == "other"


def test_notes_are_deleted_only_when_asked_and_nothing_else_is(tmp_path: Path) -> None:
    write(tmp_path, {"old.md": "", "d/old.md": "", "pic.png": "", ".hidden.md": "", "bad.md": b"\xff", "A.md": "x"})
    assert exported(tmp_path, row("a.md")).deleted == 0
    plan = exported(tmp_path, row("a.md"), row("A.md"), delete=True, dry_run=True)
    assert plan.planned == [("delete", "bad.md"), ("delete", "d/old.md"), ("delete", "old.md")]
    report = exported(tmp_path, row("a.md"), row("A.md"), delete=True)
    assert report.deleted == 3 and len(report.refused) == 2
    assert set(contents(tmp_path)) == {"a.md", "A.md", "pic.png", ".hidden.md"}, "refused rows keep their files"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    report = exported(tmp_path / "out", row("a/b.md"), dry_run=True)
    assert report.planned == [("write", "a/b.md")] and report.written == 1
    assert not (tmp_path / "out").exists()


def test_a_row_too_large_for_a_note_is_refused(tmp_path: Path) -> None:
    assert len(exported(tmp_path, row("a.md", "x" * (2 << 20))).refused) == 1


def test_a_folder_in_the_place_of_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.md").mkdir()
    write(tmp_path, {"b": "a file"})
    report = exported(tmp_path, row("a.md"), row("b/c.md"), force=True)
    assert [left.path for left in report.refused] == ["a.md", "b/c.md"] and not list(tmp_path.glob("**/.frazil*"))


def test_generated_front_matter_reads_well(tmp_path: Path) -> None:
    made = {
        "vault": "v",
        "path": "a.md",
        "title": "No: colon",
        "body": "# Other\n",
        "tags": ["x"],
        "front_matter": None,
    }
    assert exported(tmp_path, made).inexact == []
    assert (tmp_path / "a.md").read_text() == "---\ntitle: 'No: colon'\ntags:\n- x\n---\n# Other\n"
    assert parse("a.md", (tmp_path / "a.md").read_bytes(), {}).title == "No: colon"


def test_files_have_the_rights_that_new_files_have(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        exported(tmp_path, row("a.md"))
    finally:
        os.umask(before)
    assert (tmp_path / "a.md").stat().st_mode & 0o777 == 0o640
