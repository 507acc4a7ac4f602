"""A vault through the whole product: ingested, edited, killed in between, committed, and exported byte for byte."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.product import PATIENCE_SECONDS, Product, eventually, new_folder, running
from tests.vault.vaults import contents, write

pytestmark = [pytest.mark.slow, pytest.mark.spark]
FILES: dict[str, str | bytes] = {
    "Home.md": "---\r\nstatus: open\r\ncreated: 2024-01-02\r\n---\r\n# Home\r\n[[Deep]] [[Later]] #tag\r\n",
    "a/b/Deep.md": b"\xef\xbb\xbf# Deep\n![[pic.png]] [up](../../Home.md)",
    "odd 'name' ä😀.md": "---\na: [\n---\nno end",
    "empty.md": "",
}


class Rig:
    def __init__(self, product: Product, name: str) -> None:
        self.folder = product.data.parent
        self.vault = self.folder / name
        self.product = product

    def ingest(self, *words: str) -> dict[str, Any]:
        done = self.product.cli("ingest", "vault", str(self.vault), "--json", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def ask(self, sql: str, **words: Any) -> list[list[Any]]:
        answer = self.product.ask("POST", "/v1/query", {"sql": sql, **words})
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json()["rows"]
        return rows

    def titles(self, **words: Any) -> dict[str, str]:
        return dict(map(tuple, self.ask(f"SELECT path, title FROM notes WHERE vault = '{self.vault.name}'", **words)))

    def exported(self, folder: Path) -> dict[str, bytes]:
        shutil.rmtree(folder, ignore_errors=True)
        done = self.product.cli("export", "vault", str(folder), "--vault", self.vault.name, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return contents(folder)


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    with new_folder("vault") as folder, running(Product(folder / "data")) as started:
        started.up()
        yield started


def test_a_vault_there_and_back(product: Product) -> None:
    rig = Rig(product, "garden")
    write(rig.vault, FILES)
    assert rig.ingest("--column", "status=string")["new"] == 4
    again = rig.ingest()
    assert (again["unchanged"], again["links_published"], again["token"]) == (4, 0, "")
    assert rig.exported(rig.folder / "live") == contents(rig.vault), "before anything is committed"

    # Back and forth, gone and there again: every step counts, whatever the fold has reached.
    for turn in range(3):
        write(rig.vault, {"Later.md": f"# Later {turn % 2}"})
        assert rig.ingest()["token"]
        assert rig.titles()["Later.md"] == f"Later {turn % 2}"
    (rig.vault / "Later.md").unlink()
    assert rig.ingest()["deleted"] == 1
    assert rig.ask("SELECT target_path FROM note_links WHERE target = 'Later'") == [[None]]
    write(rig.vault, {"Later.md": "# Later 0"})
    assert rig.ingest("--wait", "--timeout-s", str(PATIENCE_SECONDS))["new"] == 1
    assert rig.titles(freshness="committed") == rig.titles()
    assert rig.ask("SELECT count(*) FROM notes__history WHERE path = 'Later.md'") == [[5]]

    # Killed between the two tables: links are behind, and the next run brings them.
    write(rig.vault, {"Home.md": "# Home\n[[Deep]]", "new.md": "[[Home]]"})
    killed = product.run(
        "ingest", "vault", str(rig.vault), "--data", str(product.data), FRAZIL_CRASH_AT="vault_notes_published"
    )
    assert killed.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    report = rig.ingest()
    assert (report["new"], report["changed"], report["unchanged"]) == (0, 0, 6)
    assert (report["links_published"], report["links_deleted"]) == (2, 1)
    assert rig.ingest()["token"] == ""
    product.until_drained("notes", "note_links")
    assert rig.exported(rig.folder / "committed") == contents(rig.vault)


def test_a_watched_vault_is_followed(product: Product) -> None:
    rig = Rig(product, "watched")
    write(rig.vault, {"a.md": "# A"})
    watching = product.run("ingest", "vault", str(rig.vault), "--watch", "--data", str(product.data))
    eventually(lambda: "watching" in product.said(watching), what="a watch")
    write(rig.vault, {"b.md": "# B"})
    eventually(lambda: rig.titles() == {"a.md": "A", "b.md": "B"}, what="the new note")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(PATIENCE_SECONDS) == 0
    assert "Traceback" not in product.said(watching)
