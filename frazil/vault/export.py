"""Notes back to files: what was read from a file becomes the same bytes, other rows become a file that says the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from frazil.events.types import ColumnType
from frazil.vault import front_matter
from frazil.vault.columns import key_for
from frazil.vault.files import MAX_NOTE_BYTES, walk
from frazil.vault.note import ALIASES_KEYS, BOM, CREATED_KEYS, TAGS_KEYS, UPDATED_KEYS, Note, Row, parse
from frazil.vault.places import Folder, Refused, check_path, collisions

_MEANT = ("title", "body", "front_matter", "tags", "aliases", "created", "updated")


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


def export(
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
                texts[path], lost = file_of(row, further)
            except Refused as error:
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


def file_of(row: Mapping[str, Any], further: Mapping[str, ColumnType]) -> tuple[bytes, list[str]]:
    """The bytes of a row's file, and the columns that will not be read back from it as they are.

    The front matter of the file that the row came from is used if it says what the row says; a row that was changed by
    another producer, or made by one, gets a block of its own.
    """
    wanted = _meaning(row, further)
    body = wanted["body"]
    text = row.get("front_matter_text")
    if text is not None and front_matter.split(text + body) == (text, body):
        raw = _encoded(text + body, bom=bool(row.get("has_bom")))
        if not _differences(wanted, parse(row["path"], raw, further)):
            return raw, []
    block = _block(wanted, row["path"], further)
    raw = _encoded(block + body, bom=bool(row.get("has_bom")))
    return raw, _differences(wanted, parse(row["path"], raw, further))


def _encoded(text: str, *, bom: bool) -> bytes:
    raw = ((BOM if bom else "") + text).encode()
    if len(raw) > MAX_NOTE_BYTES:
        raise Refused(f"its file would have {len(raw):,} bytes, at most {MAX_NOTE_BYTES:,} are a note")
    return raw


def _meaning(row: Mapping[str, Any], further: Mapping[str, ColumnType]) -> Row:
    """What the row says, in the forms in which a note says it."""
    said = {column: row.get(column) for column in (*_MEANT, *further)}
    said["body"] = said["body"] or ""
    if isinstance(said["front_matter"], str):
        said["front_matter"] = json.loads(said["front_matter"])
    return {column: _plain(value) for column, value in said.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value.astimezone(UTC)
        return moment.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _differences(wanted: Row, note: Note) -> list[str]:
    """The columns that the row gives and the note does not say. What the row leaves out, a note may say."""
    read = note.row("")
    return [
        column
        for column, value in wanted.items()
        if value is not None and not _same(column, value, _plain(read.get(column)))
    ]


def _same(column: str, value: Any, read: Any) -> bool:
    if column == "front_matter" and isinstance(value, dict):
        # Generated front matter has further keys: those of the columns.
        return isinstance(read, dict) and value.items() <= read.items() if _flat(value) else read == value
    if column == "tags":
        return set(value) <= set(read)
    return bool(value == read) or str(value) == str(read)


def _flat(value: Mapping[str, Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in value.values())


def _block(wanted: Row, path: str, further: Mapping[str, ColumnType]) -> str:
    """Front matter that says what neither the body nor the name of the file says by itself."""
    given = wanted["front_matter"]
    values: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    bare = parse(path, front_matter.dump({}).encode() + wanted["body"].encode(), further)
    if wanted["title"] and wanted["title"] != bare.title:
        values["title"] = wanted["title"]
    elif "title" in values and values["title"] != wanted["title"]:
        del values["title"]
    inline = set(bare.tags)
    _say(values, TAGS_KEYS, [tag for tag in wanted["tags"] or () if tag not in inline])
    _say(values, ALIASES_KEYS, wanted["aliases"] or None)
    _say(values, CREATED_KEYS, wanted["created"])
    _say(values, UPDATED_KEYS, wanted["updated"])
    for column in further:
        if wanted[column] is not None:
            values[key_for(column, values) or column] = wanted[column]
    body = wanted["body"]
    needs_none = not values and given is None and not body.startswith(BOM) and front_matter.split(body)[0] == ""
    return "" if needs_none else front_matter.dump(values)


def _say(values: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    if value:
        values[next((key for key in keys if values.get(key) is not None), keys[0])] = value


class _Target:
    """The folder that is exported to; on a dry run only looked at."""

    def __init__(self, root: Path, report: ExportReport, *, force: bool, dry_run: bool) -> None:
        self._root = root
        self._report = report
        self._force = force
        self._dry_run = dry_run
        self._folder = None if dry_run and not root.is_dir() else Folder(root)

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
                raise Refused("another file is there; --force replaces it")
            if self._dry_run:
                self._report.planned.append(("write", path))
            elif self._folder is not None:
                self._folder.write(path, content)
            self._report.written += 1
        except Refused as error:
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
            except Refused as error:
                self._report.refused.append(Left(path, str(error)))
