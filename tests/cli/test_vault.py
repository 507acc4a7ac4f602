"""`frazil ingest vault` and `frazil export vault` as a terminal sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.cli.options import SharedOptions
from tests.cli.conftest import Run
from tests.vault.duck_client import DuckClient
from tests.vault.vaults import contents, write


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DuckClient:
    found = DuckClient(tmp_path)
    monkeypatch.setattr(SharedOptions, "connect", lambda options: found)
    return found


def test_there_and_back(run: Run, client: DuckClient, tmp_path: Path) -> None:
    files = {"a.md": "---\r\nstatus: open\r\n---\r\n# A\r\n[[b]]", "d/b.md": "# B #x\n"}
    write(tmp_path / "vault", files)
    plan = run("ingest", "vault", "vault", "--column", "status=string", "--dry-run")
    assert plan.code == 0 and "new      d/b.md" in plan.out and client.declared == {}
    done = run("ingest", "vault", "vault", "--column", "status=string", "--wait")
    assert done.code == 0, done.err
    assert "vault: 2 notes: 2 new, 0 changed, 0 deleted, 0 unchanged; 1 links: 1 published" in done.out
    assert "\ntoken " in done.out
    again = json.loads(run("ingest", "vault", "vault", "--json").out)
    assert (again["unchanged"], again["new"], again["token"], again["skipped"]) == (2, 0, "", [])
    back = run("export", "vault", "copy", "--vault", "vault", "--json")
    assert back.code == 0 and json.loads(back.out)["written"] == 2
    assert contents(tmp_path / "copy") == {path: text.encode() for path, text in files.items()}


def test_what_was_left_out_is_told_and_the_code_is_1(run: Run, client: DuckClient, tmp_path: Path) -> None:
    write(tmp_path / "v", {"bad.md": b"\xff", "good.md": "---\na: [\n---\n"})
    done = run("ingest", "vault", "v")
    assert done.code == 1 and "1 new" in done.out and "1 skipped" in done.out
    assert "skipped  bad.md: it is not UTF-8" in done.err and "warning  good.md: its front matter" in done.err
    done = run("export", "vault", "v")
    assert done.code == 0 and "1 unchanged" in done.out
    write(tmp_path / "v", {"good.md": "mine"})
    done = run("export", "vault", "v")
    assert done.code == 1 and "refused  'good.md': another file is there" in done.err


def test_errors_name_the_way_out(run: Run, client: DuckClient, tmp_path: Path) -> None:
    assert "Try:" in run("ingest", "vault", "nowhere").err
    write(tmp_path / "v", {"a.md": ""})
    assert run("ingest", "vault", "v", "--column", "status").code == 1
    assert run("ingest", "vault", "v").code == 0
    missing = run("export", "vault", "other")
    assert missing.code == 1 and "the table has v" in missing.err
    assert not (tmp_path / "other").exists()
