"""Clean-up of all shelves: every hour, whether anything is built or not.

A dropped table can be brought back, so its artifacts stay. What belongs to a profile that is gone is removed here; what
belongs to a purged table went with the purge, and if that was cut off, here.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from frazil.errors import FrazilError
from frazil.lake.catalog import Lake
from frazil.serving.artifacts.shelf import Shelf, Tidied, open_shelf
from frazil.serving.profiles import Profiles
from frazil.serving.settings import SearchSettings

log = logging.getLogger(__name__)
_EVERY = timedelta(hours=1)
_REGISTERS = "artifacts/"


class ShelfCleanup:
    """A job trigger that needs no job. Several processes may each have one."""

    def __init__(self, lake: Lake, settings: SearchSettings, kept: Path, note: Callable[..., None]) -> None:
        """`kept` is where builds keep vectors, a folder for each shelf."""
        self._lake = lake
        self._settings = settings
        self._kept = kept
        self._note = note
        self._tidied_at: datetime | None = None

    def poll(self, now: datetime) -> None:
        if self._tidied_at is not None and now - self._tidied_at < _EVERY:
            return
        self._tidied_at = now
        for name in shelves(self._lake):
            try:
                self._tidy(open_shelf(self._lake.registry, self._lake.warehouse, name, self._settings))
            except FrazilError as error:
                log.warning("artifact clean-up failed of %s: %s", name, error)
        for folder in self._kept.iterdir() if self._kept.is_dir() else ():
            if self._is_nobodys(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    def _tidy(self, shelf: Shelf) -> None:
        if shelf.register().entries and self._is_nobodys(shelf.table):
            shelf.clear()
            self._note("artifacts_cleared", table=shelf.table)
            return
        done = shelf.tidy()
        if done != Tidied(spared=done.spared):
            self._note("artifacts_tidied", table=shelf.table, removed=done.removed, orphans=done.orphans)

    def _is_nobodys(self, shelf: str) -> bool:
        table, _, profile = shelf.partition("@")
        if table not in self._lake.locations() and table not in self._lake.dropped():
            return True
        return bool(profile) and all(one.shelf != shelf for one in Profiles(self._lake.registry).list(table))


def shelves(lake: Lake, table: str | None = None) -> list[str]:
    """The names of all shelves, or of those of one table and its profiles."""
    found = [document.key.removeprefix(_REGISTERS) for document in lake.registry.list(_REGISTERS)]
    return [name for name in found if table is None or name.partition("@")[0] == table]


def clear_shelves(lake: Lake, table: str, table_id: str) -> int:
    """Remove the artifacts of a purged table; those of another that took its name stay. How many shelves had some."""
    cleared = 0
    for name in shelves(lake, table):
        shelf = open_shelf(lake.registry, lake.warehouse, name, SearchSettings())
        if any(entry.cut.table_id == table_id for entry in shelf.register().entries):
            shelf.clear(table_id)
            cleared += 1
    return cleared
