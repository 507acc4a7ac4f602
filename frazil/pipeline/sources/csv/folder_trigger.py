"""Folder trigger: files of a watched folder are loaded once they stop changing."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

from frazil.pipeline.settings import WatchSettings
from frazil.pipeline.sources.csv.load_options import parse_load
from frazil.registry import Job, Registry, open_jobs, submit_job
from frazil.requests import CSV

log = logging.getLogger(__name__)
_UNFINISHED = (".part", ".tmp", ".crdownload", ".swp", "~")

Mark = tuple[int, int]


class FolderTrigger:
    """Submits a load of each file that is new or was changed, and has been the same for two looks.

    After a start every file is submitted once more: the load finds by its content that it was loaded before.
    """

    def __init__(self, name: str, settings: WatchSettings, registry: Registry) -> None:
        self._name = name
        self._settings = settings
        self._registry = registry
        self._before: dict[Path, Mark] = {}
        self._submitted: dict[Path, Mark] = {}
        self._looked_at: datetime | None = None

    def poll(self, now: datetime) -> None:
        last = self._looked_at
        if last is not None and (now - last).total_seconds() < self._settings.look_seconds:
            return
        self._looked_at = now
        marks = self._marks()
        still = [path for path, mark in marks.items() if self._before.get(path) == mark != self._submitted.get(path)]
        self._before = marks
        if still and not self._busy():
            self._submit(sorted(still))
            self._submitted |= {path: marks[path] for path in still}

    def _marks(self) -> dict[Path, Mark]:
        marks = {}
        try:
            paths = sorted(self._settings.folder.expanduser().glob(self._settings.pattern))
        except OSError as error:
            log.warning("watched folder unreadable: %s: %s", self._name, error)
            return {}
        for path in paths:
            if path.name.startswith(".") or path.name.endswith(_UNFINISHED):
                continue
            try:
                status = path.stat()
            except OSError:
                continue  # gone since it was listed
            if path.is_file():
                marks[path.absolute()] = (status.st_size, status.st_mtime_ns)
        return marks

    def _busy(self) -> bool:
        """One load of a folder at a time: what comes meanwhile is loaded together."""
        return any(job.params.get("source") == self._source for job in open_jobs(self._registry, [CSV.name]))

    @property
    def _source(self) -> str:
        return f"csv:watch/{self._name}"

    def _submit(self, paths: list[Path]) -> Job:
        body = {
            "table": self._settings.table,
            "files": [str(path) for path in paths],
            "mode": self._settings.mode,
            "max_bad": self._settings.max_bad,
            "source": self._source,
        }
        load = parse_load(body)
        return submit_job(self._registry, CSV.name, load.table, load.params(), asked_by=f"watch {self._name}")
