"""kill -9 at each point of a synchronisation and of an export: the next run makes it whole, and nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from frazil.vault import VaultSync
from tests.vault.log_tables import LogTables
from tests.vault.vaults import contents, write

ROOT = Path(__file__).parent.parent.parent
FIRST = {"a.md": "# A\n[[b]] [[c]]", "b.md": "# B [[a]]", "gone.md": "[[a]]"}
THEN = {"a.md": "# A2\n[[c]]", "c.md": "# C"}


def run(what: str, folder: Path, vault: Path, crash_at: str = "") -> int:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FRAZIL_CRASH_AT": crash_at}
    command = [sys.executable, "-m", "tests.vault.run_vault", what, str(folder), str(vault)]
    return subprocess.run(command, env=environment, cwd=ROOT, timeout=60, check=False).returncode


@pytest.mark.parametrize("point", ["vault_notes_published", "vault_links_published"])
def test_a_killed_synchronisation_is_finished_by_the_next(point: str, tmp_path: Path) -> None:
    vault, tables = tmp_path / "vault", LogTables(tmp_path)
    write(vault, FIRST)
    assert run("sync", tmp_path, vault) == 0
    write(vault, THEN)
    (vault / "gone.md").unlink()
    assert run("sync", tmp_path, vault, point) == -signal.SIGKILL
    assert run("sync", tmp_path, vault) == 0
    assert {row["path"]: row["title"] for row in tables.rows("notes", "v")} == {
        "a.md": "A2",
        "b.md": "B a",
        "c.md": "C",
    }
    links = {(row["path"], row["position"]): row["target_path"] for row in tables.rows("links", "v")}
    assert links == {("a.md", 1): "c.md", ("b.md", 1): "a.md"}
    assert [len(tables.events(which)) for which in ("notes", "links")] == [3 + 3, 4 + 3]
    assert VaultSync(vault, "v", tables).run().published == 0


@pytest.mark.parametrize("nth", [1, 2])
def test_a_killed_export_leaves_whole_files(nth: int, tmp_path: Path) -> None:
    vault, out = tmp_path / "vault", tmp_path / "out"
    write(vault, FIRST)
    assert run("sync", tmp_path, vault) == 0
    write(out, {"a.md": "before"})
    assert run("export", tmp_path, out, f"vault_file_beside:{nth}") == -signal.SIGKILL
    whole = {path: content for path, content in contents(out).items() if not path.startswith(".")}
    now = {path: text.encode() for path, text in FIRST.items()}
    assert all(content in (now[path], b"before") for path, content in whole.items())
    assert len(whole) == 1 and (whole["a.md"] == b"before") == (nth == 1)
    assert run("export", tmp_path, out) == 0
    assert VaultSync(out, "v", LogTables(tmp_path)).run().published == 0
