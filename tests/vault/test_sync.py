"""A folder and its tables: only what differs is published, once, and nothing that could not be read is deleted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.events.declaration import parse_type
from frazil.vault import SyncReport, VaultSync, parse_columns
from frazil.vault.sync import Which
from tests.vault.log_tables import LogTables
from tests.vault.vaults import write

WHICH: tuple[Which, ...] = ("notes", "links")


class Vault:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "vault"
        self.root.mkdir()
        self.tables = LogTables(folder)

    def write(self, **files: str | bytes) -> None:
        write(self.root, {f"{name}.md": content for name, content in files.items()})

    def sync(self, **words: Any) -> SyncReport:
        """As a new process does it."""
        return VaultSync(self.root, "v", self.tables).run(**words)

    def titles(self) -> dict[str, str]:
        return {row["path"]: row["title"] for row in self.tables.rows("notes", "v")}

    def targets(self) -> dict[tuple[str, int], str | None]:
        return {(row["path"], row["position"]): row["target_path"] for row in self.tables.rows("links", "v")}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


def did(report: SyncReport) -> tuple[int, int, int, int]:
    return report.new, report.changed, report.deleted, report.unchanged


def test_only_what_changed_is_published(vault: Vault) -> None:
    vault.write(a="# A\n[[b]] [[c]]", b="# B", x="# X")
    first = vault.sync()
    assert did(first) == (3, 0, 0, 0) and first.links == first.links_published == 2
    assert first.token == "links-2"
    assert vault.sync().published == 0
    vault.write(b="# B2", c="---\ntitle: See\n---\n")
    (vault.root / "x.md").unlink()
    second = vault.sync()
    assert did(second) == (1, 1, 1, 1)
    assert vault.titles() == {"a.md": "A", "b.md": "B2", "c.md": "See"}
    # c.md is what the second link of a.md meant all the time; a.md itself was not touched.
    assert second.links_published == 1 and vault.targets() == {("a.md", 1): "b.md", ("a.md", 2): "c.md"}
    assert vault.tables.repeated == 0


def test_edits_back_and_forth_are_all_kept(vault: Vault) -> None:
    for turn in range(3):
        for text in ("# A [[x]]", "# B"):
            vault.write(n=text)
            assert vault.sync().published, (turn, text)
            assert vault.titles()["n.md"] == text[2:3] + (" x" if "x" in text else "")
        (vault.root / "n.md").unlink()
        vault.write(other="")
        vault.sync()
        assert "n.md" not in vault.titles()
    assert vault.tables.repeated == 0


def test_a_run_that_was_not_heard_repeats_the_same_ids(vault: Vault) -> None:
    """The table is read before the first run's events are seen in it: as with two runs at once."""
    vault.write(a="[[b]]", b="")
    vault.sync()
    vault.write(a="[[b]] [[b]]")
    (vault.root / "b.md").unlink()
    before = {which: vault.tables.versions(which, "v") for which in WHICH}
    vault.sync()
    events = {which: vault.tables.events(which) for which in before}
    vault.tables.versions = lambda which, vault: before[which]  # type: ignore[method-assign]
    vault.sync()
    assert vault.tables.repeated == 4 and {which: vault.tables.events(which) for which in before} == events


def test_links_that_are_gone_are_deleted(vault: Vault) -> None:
    vault.write(a="[[b]] [[c]] [[d]]")
    vault.sync()
    vault.write(a="[[c]]")
    report = vault.sync()
    assert (report.links, report.links_published, report.links_deleted) == (1, 1, 2)
    (vault.root / "a.md").unlink()
    vault.write(z="")
    assert vault.sync().links_deleted == 1 and vault.targets() == {}


def test_what_cannot_be_read_is_told_and_its_row_stays(vault: Vault) -> None:
    vault.write(bad="# Was good [[x]]", large="# Was small", good="# Good")
    vault.sync()
    vault.write(bad=b"\xff\xfe# no", large="x" * ((1 << 20) + 1), good="# Better")
    (vault.root / b"n\xff.md".decode(errors="surrogateescape")).write_text("x")
    os.mkfifo(vault.root / "pipe.md")
    report = vault.sync()
    assert did(report) == (0, 1, 0, 0)
    reasons = {skipped.path: skipped.reason for skipped in report.skipped}
    assert set(reasons) == {"bad.md", "large.md", "pipe.md", "'n\\udcff.md'"}
    assert "UTF-8 (byte 0)" in reasons["bad.md"] and "bytes" in reasons["large.md"]
    assert vault.titles() == {"bad.md": "Was good x", "large.md": "Was small", "good.md": "Better"}
    assert vault.targets() == {("bad.md", 1): None}


def test_a_note_too_large_for_an_event_does_not_hold_up_the_others(vault: Vault) -> None:
    vault.write(quotes='"' * 600_000, good="")
    report = vault.sync()
    assert [skipped.path for skipped in report.skipped] == ["quotes.md"] and report.new == 1


def test_hidden_files_are_no_notes_and_links_stay_inside(vault: Vault, tmp_path: Path) -> None:
    write(
        vault.root, {".obsidian/a.md": "", ".git/b.md": "", ".c.md": "", "d/.e/f.md": "", "d/n.md": "# N", "p.txt": ""}
    )
    write(tmp_path, {"secret.md": "secret", "outside/x.md": "x"})
    (vault.root / "leak.md").symlink_to(tmp_path / "secret.md")
    (vault.root / "folder").symlink_to(tmp_path / "outside")
    (vault.root / "git.md").symlink_to(vault.root / ".git" / "b.md")
    (vault.root / "same.md").symlink_to("d/n.md")
    (vault.root / "loop.md").symlink_to("loop.md")
    (vault.root / "d" / "again").symlink_to("..")
    report = vault.sync()
    assert vault.titles() == {"d/n.md": "N", "same.md": "N"}
    assert [skipped.path for skipped in report.skipped] == ["folder", "git.md", "leak.md", "loop.md"]


def test_notes_of_a_folder_that_became_a_link_to_elsewhere_stay(vault: Vault, tmp_path: Path) -> None:
    write(vault.root, {"moved/a.md": "# A [[b]]", "b.md": ""})
    vault.sync()
    (vault.root / "moved").rename(tmp_path / "moved")
    (vault.root / "moved").symlink_to(tmp_path / "moved")
    report = vault.sync()
    assert report.deleted == report.links_deleted == 0 and [skipped.path for skipped in report.skipped] == ["moved"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_notes_of_a_folder_that_cannot_be_read_stay(vault: Vault) -> None:
    write(vault.root, {"closed/a.md": "# A [[b]]", "b.md": ""})
    vault.sync()
    (vault.root / "closed").chmod(0)
    try:
        report = vault.sync()
    finally:
        (vault.root / "closed").chmod(0o755)
    assert report.deleted == report.links_deleted == 0 and [skipped.path for skipped in report.skipped] == ["closed"]


def test_an_empty_folder_deletes_nothing_by_itself(vault: Vault) -> None:
    vault.write(a="[[b]]")
    vault.sync()
    (vault.root / "a.md").unlink()
    with pytest.raises(Conflict, match="has no notes"):
        vault.sync()
    assert vault.sync(allow_empty=True).deleted == 1 and vault.titles() == {} and vault.targets() == {}
    vault.root.rmdir()
    with pytest.raises(NotFound):
        vault.sync()


def test_bad_front_matter_is_a_warning(vault: Vault) -> None:
    vault.write(a="---\na: [\n---\n# Kept #tag", b="---\ndate: someday\n---\n")
    report = vault.sync()
    assert report.new == 2 and report.skipped == ()
    assert [warned.path for warned in report.warnings] == ["a.md", "b.md"]
    first, second = vault.tables.rows("notes", "v")
    assert (
        first["front_matter"] is None and first["front_matter_text"] == "---\na: [\n---\n" and first["tags"] == ["tag"]
    )
    assert second["front_matter"] == '{"date":"someday"}' and second["created"] is None


def test_rows_of_other_producers(vault: Vault) -> None:
    """The file decides where there is one; a row that never had a file is not a deleted file."""
    vault.write(a="# A")
    vault.sync()
    for path in ("a.md", "b.md"):
        event = {"id": f"by hand {path}", "op": "upsert", "data": {"vault": "v", "path": path, "title": "by hand"}}
        vault.tables.publish("notes", [event])
    report = vault.sync()
    assert did(report) == (0, 1, 0, 0) and report.foreign == 1
    assert vault.titles() == {"a.md": "A", "b.md": "by hand"}
    assert vault.sync().published == 0


def test_vaults_share_the_tables(vault: Vault, tmp_path: Path) -> None:
    vault.write(a="# A")
    vault.sync()
    write(tmp_path / "w", {"a.md": "# W"})
    assert VaultSync(tmp_path / "w", "w", vault.tables).run().new == 1
    assert vault.sync().published == 0 and vault.titles() == {"a.md": "A"}


def test_front_matter_fills_declared_columns(vault: Vault, tmp_path: Path) -> None:
    vault.write(a="---\nStatus: open\ndue date: 2024-02-30\nn: 5\nwhen: 2024-01-01 10:00 +02:00\n---\n", b="# no")
    columns = parse_columns(["status=string", "due_date=date", "n:string", "when=timestamp", "many=list<string>"])
    tables = LogTables(tmp_path, {name: str(kind) for name, kind in columns.items()})
    assert VaultSync(vault.root, "v", tables).run().new == 2
    report = VaultSync(vault.root, "v", tables, further=columns).run()
    assert report.changed == 2, "a new column is a change of every note"
    row = tables.rows("notes", "v")[0]
    assert (row["status"], row["due_date"], row["n"]) == ("open", None, "5")
    assert row["when"].isoformat() == "2024-01-01T08:00:00+00:00"
    assert [warned.warning for warned in report.warnings if "2024-02-30" in warned.warning]


@pytest.mark.parametrize("text", ["status", "=string", "Status=string", "path=string", "a=b"])
def test_columns_that_cannot_be_declared(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_columns([text])


def test_a_dry_run_publishes_nothing(vault: Vault) -> None:
    vault.write(a="[[b]]")
    report = vault.sync(dry_run=True)
    assert report.planned == (("new", "a.md"),) and report.links_published == 1 and not report.token
    assert vault.tables.events("notes") == []


def test_types_of_the_columns_are_those_of_declarations() -> None:
    assert parse_columns(["price=decimal(12,2)"]) == {"price": parse_type("decimal(12,2)")}
