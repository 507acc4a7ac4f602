"""A watched vault follows edits as editors make them, and what failed is tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import FrazilError, Unavailable
from frazil.vault import SyncReport, VaultSync, follow, vault_watch
from frazil.vault.sync import Which
from tests.vault.log_tables import LogTables
from tests.vault.vaults import write

PATIENCE_SECONDS = 120.0


class Watched:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "vault"
        self.tables = LogTables(folder)
        self.reports: list[SyncReport] = []
        self.errors: list[FrazilError] = []
        self.stop = threading.Event()
        write(self.root, {"a.md": "# A"})
        self.thread = threading.Thread(target=self._follow)

    def _follow(self) -> None:
        sync = VaultSync(self.root, "v", self.tables)
        for report in follow(sync, self.root, stop=self.stop, on_error=self.errors.append):
            self.reports.append(report)

    def titles(self) -> dict[str, str]:
        return {row["path"]: row["title"] for row in self.tables.rows("notes", "v")}

    def until(self, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not look():
            assert time.monotonic() < deadline and self.thread.is_alive(), (self.titles(), self.errors)
            time.sleep(0.05)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(vault_watch, "_AGAIN_MS", 200)
    found = Watched(tmp_path)
    yield found
    found.stop.set()
    found.thread.join(PATIENCE_SECONDS)
    assert not found.thread.is_alive()


def test_edits_are_followed(watched: Watched) -> None:
    watched.thread.start()
    watched.until(lambda: watched.titles() == {"a.md": "A"})
    beside = watched.root / ".a.md.swp"
    beside.write_text("# Saved by renaming")
    beside.rename(watched.root / "a.md")
    watched.until(lambda: watched.titles() == {"a.md": "Saved by renaming"})
    write(watched.root, {"new/folder/b.md": "# B"})
    watched.until(lambda: watched.titles().get("new/folder/b.md") == "B")
    (watched.root / "a.md").rename(watched.root / "new" / "c.md")
    watched.until(lambda: set(watched.titles()) == {"new/c.md", "new/folder/b.md"})
    assert all(report.published for report in watched.reports) and watched.errors == []


def test_what_failed_is_tried_again(watched: Watched) -> None:
    publish = watched.tables.publish
    failing = threading.Event()
    failing.set()

    def refused(which: Which, events: Sequence[Mapping[str, Any]]) -> str:
        if failing.is_set():
            raise Unavailable("the bus is full")
        return publish(which, events)

    watched.tables.publish = refused  # type: ignore[method-assign]
    watched.thread.start()
    watched.until(lambda: bool(watched.errors))
    failing.clear()
    watched.until(lambda: watched.titles() == {"a.md": "A"})
