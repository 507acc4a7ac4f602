"""Export: notes as files in one folder. Existing files are kept unless forced, and every row is reported."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frazil.events.declaration import ColumnType
from frazil.vault.files import MAX_NOTE_BYTES, walk
from frazil.vault.note_file import file_of
from frazil.vault.note_paths import OutputFolder, PathRefused, check_path, collisions


@dataclass(frozen=True)
class Left:
    """A row or file that was left alone, and why."""

    path: str
    reason: str


@dataclass
class ExportReport:
    vault: str
    notes: int = 0
    written: int = 0
    unchanged: int = 0
    deleted: int = 0
    refused: list[Left] = field(default_factory=list)
    inexact: list[Left] = field(default_factory=list)
    """Written, but a Markdown file cannot say all that the row says."""
    seconds: float = 0.0
    planned: list[tuple[str, str]] = field(default_factory=list)
    """For a dry run: what would be done to which file."""


def export_notes(
    rows: Iterable[Mapping[str, Any]],
    root: Path,
    vault: str,
    further: Mapping[str, ColumnType],
    *,
    force: bool = False,
    delete: bool = False,
    dry_run: bool = False,
) -> ExportReport:
    """Write each row as its file below `root`.

    A file that is there with other content is left alone unless `force`; a note that no row is of is left alone unless
    `delete`. Nothing else in the folder is ever touched. Killed anywhere, each file is as before or as the row has it.
    """
    begun = time.monotonic()
    report = ExportReport(vault)
    with _Target(root, report, force=force, dry_run=dry_run) as target:
        texts: dict[str, bytes] = {}
        named: set[str] = set()
        for row in rows:
            report.notes += 1
            named.add(str(row.get("path")))
            try:
                path = check_path(row.get("path"))
                content, lost = file_of(row, further)
                if len(content) > MAX_NOTE_BYTES:
                    raise PathRefused(
                        f"its file would have {len(content):,} bytes, at most {MAX_NOTE_BYTES:,} are a note"
                    )
                texts[path] = content
            except PathRefused as error:
                report.refused.append(Left(str(row.get("path")), str(error)))
                continue
            if lost:
                report.inexact.append(Left(path, f"its {', '.join(lost)} will not be read back as the row has it"))
        colliding = collisions(texts)
        for path, content in texts.items():
            if path in colliding:
                report.refused.append(Left(path, colliding[path]))
            else:
                target.put(path, content)
        if delete:
            target.prune(named)
    report.refused.sort(key=lambda left: left.path)
    report.seconds = time.monotonic() - begun
    return report


class _Target:
    """The folder of the export; not created on a dry run."""

    def __init__(self, root: Path, report: ExportReport, *, force: bool, dry_run: bool) -> None:
        self._root = root
        self._report = report
        self._force = force
        self._dry_run = dry_run
        self._folder = None if dry_run and not root.is_dir() else OutputFolder(root)

    def __enter__(self) -> _Target:
        return self

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            self._folder.__exit__(None, None, None)

    def put(self, path: str, content: bytes) -> None:
        try:
            there = self._folder.read(path, MAX_NOTE_BYTES) if self._folder else None
            if there == content:
                self._report.unchanged += 1
                return
            if there is not None and not self._force:
                raise PathRefused("another file is there; --force replaces it")
            if self._dry_run:
                self._report.planned.append(("write", path))
            elif self._folder is not None:
                self._folder.write(path, content)
            self._report.written += 1
        except PathRefused as error:
            self._report.refused.append(Left(path, str(error)))

    def prune(self, named: set[str]) -> None:
        """Delete the notes that no row is of, whether or not that row could be written."""
        if self._folder is None:
            return
        for path in walk(self._root).notes:
            if path in named:
                continue
            try:
                if self._dry_run:
                    self._report.planned.append(("delete", path))
                else:
                    self._folder.remove(path)
                self._report.deleted += 1
            except PathRefused as error:
                self._report.refused.append(Left(path, str(error)))
