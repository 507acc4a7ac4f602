"""Catalog rebuild: the folder of every table in the warehouse has its name, its declaration and its state.

Only missing tables are registered. Tables of the catalog stay as they are, so that this is safe while frazil runs.
After a kill it continues, because a table is one row of the catalog.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyarrow.fs import FileInfo, FileType
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import ToOutputFile

from frazil.crash import crash_point
from frazil.errors import FrazilError
from frazil.events.declaration import DROPPED_NAMESPACE, TableSpec, parse_table
from frazil.lake.catalog.iceberg_files import address_of, listed, path_of
from frazil.lake.catalog.lake import Lake, hidden_name, translated
from frazil.lake.catalog.table import DECLARATION, DROPPED_AT, summary_of
from frazil.lake.recovery.metadata_candidates import (
    MetadataCandidate,
    is_metadata_file,
    newest_candidates,
    number_of,
    read_states,
)
from frazil.lake.recovery.missing_files import Missing, find_missing_files

_DEEPEST = 8
_USED_AFTER = timedelta(seconds=60)
"""A mark that the table went on after for longer than this is of a drop that never took place."""


@dataclass(frozen=True)
class TableFolder:
    """A folder with the metadata of a table."""

    location: str
    files: tuple[str, ...]
    changed_at: datetime


@dataclass(frozen=True)
class RebuiltTable:
    """The outcome for one table."""

    name: str
    state: str
    """`registered`, `dropped` (registered as such), `already_there`, `behind`, `damaged`, `foreign`, `leftover` or
    `too_new`."""
    location: str
    metadata: str = ""
    rows: int = 0
    snapshots: int = 0
    columns: int = 0
    watermark: int | None = None
    missing_files: int = 0
    unreadable: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    """Metadata files that may as well have been the last; they differ by one commit that had no answer."""
    note: str = ""

    def body(self) -> dict[str, Any]:
        return {**vars(self), "name": self.name.removeprefix("main.")}


@dataclass(frozen=True)
class _Unregistered:
    folder: TableFolder
    state: MetadataCandidate
    spec: TableSpec
    result: RebuiltTable

    @property
    def dropped_at(self) -> int | None:
        """When it was dropped, by its mark. A mark that the table outlived is none."""
        mark = self.state.metadata.properties.get(DROPPED_AT, "")
        if not mark.isdecimal():
            return None
        current = self.state.metadata.current_snapshot()
        used_at = current.timestamp_ms / 1000 if current else 0.0
        return int(mark) if used_at <= int(mark) / 1e9 + _USED_AFTER.total_seconds() else None

    @property
    def age(self) -> tuple[int, str]:
        return self.state.metadata.last_updated_ms, str(self.state.metadata.table_uuid)

    @property
    def hidden_at(self) -> int:
        """The same in every process, so that two repairs at once do not hide the table twice."""
        unmarked = self.state.metadata.last_updated_ms * 1_000_000 + self.state.metadata.table_uuid.int % 1_000_000
        return self.dropped_at or unmarked

    @property
    def never_used(self) -> bool:
        return self.state.sequence == 0


def repair_catalog(lake: Lake, *, dry_run: bool = False, settled_seconds: float = 0.0) -> list[RebuiltTable]:
    """Register every table of the warehouse that the catalog lacks. With `dry_run` nothing is changed.

    A folder that changed within `settled_seconds` is left alone: somebody may be making that table now, and would take
    a name that is there already for another's.
    """
    io = load_file_io(lake.catalog.properties, lake.warehouse.url)
    with translated("search the warehouse for tables"):
        # In this order: a table that is made meanwhile is in the catalog by the time that is read.
        folders = list(_folders(io, lake.warehouse.url.rstrip("/"), _DEEPEST))
    known = {_folder_of(location): (name, location) for name, location in lake.every_location().items()}
    found: list[RebuiltTable] = []
    unregistered: list[_Unregistered] = []
    settled = datetime.now(UTC) - timedelta(seconds=settled_seconds)
    for folder in folders:
        with translated(f"look at {folder.location}"):
            if (entry := known.pop(path_of(folder.location), None)) is not None:
                found.append(_known(io, folder, *entry))
                continue
            judged = _judged(io, folder)
        if isinstance(judged, RebuiltTable):
            found.append(judged)
        elif folder.changed_at > settled:
            found.append(
                replace(judged.result, state="too_new", note="it is being made now; run this again in a minute")
            )
        else:
            unregistered.append(judged)
    found += [_without_folder(io, name, location) for name, location in known.values()]
    found += _registered(lake, io, unregistered, dry_run=dry_run)
    return sorted(found, key=lambda table: (table.name, table.location))


def _folders(io: FileIO, location: str, deepest: int) -> Iterator[TableFolder]:
    """Every folder of a table. Nothing below one is listed: that is where its many files are."""
    entries = listed(io, location, below=False)
    inner = [entry for entry in entries if entry.type == FileType.Directory]
    if any(entry.base_name == "metadata" for entry in inner):
        inside = listed(io, f"{location}/metadata", below=False)
        files = [entry for entry in inside if is_metadata_file(entry.base_name)]
        if files:
            changed_at = max(_changed_at(file) for file in files)
            yield TableFolder(location, tuple(address_of(file.path, like=location) for file in files), changed_at)
            return
    if deepest:
        for entry in inner:
            yield from _folders(io, f"{location}/{entry.base_name}", deepest - 1)


def _changed_at(file: FileInfo) -> datetime:
    return (file.mtime or datetime.now(UTC)).astimezone(UTC)


def _folder_of(metadata_location: str) -> str:
    return path_of(metadata_location).rpartition("/metadata/")[0]


def _known(io: FileIO, folder: TableFolder, name: str, location: str) -> RebuiltTable:
    """A table of the catalog. It stays as it is, and is only reported."""
    state = "dropped" if name.startswith(f"{DROPPED_NAMESPACE}.") else "already_there"
    states, _ = read_states(io, [location])
    if not states:
        note = "the metadata file that the catalog names is gone or unreadable: restore it from a backup"
        return RebuiltTable(name, "damaged", folder.location, location, note=note)
    result = _rebuilt(states[0], name, state)
    if DECLARATION not in states[0].metadata.properties:
        return replace(result, state="foreign")
    # A commit that has not swapped yet is one ahead. A second one was made by somebody who saw the first as current.
    newest = max(folder.files, key=lambda file: number_of(file.rpartition("/")[2]))
    ahead = number_of(newest.rpartition("/")[2]) - states[0].number
    if ahead >= 2 and any(newer.descends_from(states[0]) for newer in read_states(io, [newest])[0]):
        note = f"the warehouse is {ahead} commits ahead: the catalog is an older copy. Move it away and run this again"
        return replace(result, state="behind", note=note)
    return result


def _without_folder(io: FileIO, name: str, location: str) -> RebuiltTable:
    """A table of the catalog that does not lie in the warehouse: another's, or one whose files are gone."""
    with translated(f"look at {name}"):
        states, _ = read_states(io, [location])
    if states:
        state = "already_there" if DECLARATION in states[0].metadata.properties else "foreign"
        return _rebuilt(states[0], name, state)
    note = "the catalog has it and the warehouse has not: restore its files from a backup"
    return RebuiltTable(name, "damaged", _folder_of(location), location, note=note)


def _judged(io: FileIO, folder: TableFolder) -> RebuiltTable | _Unregistered:
    states, torn = read_states(io, folder.files)
    last = newest_candidates(states)
    name = folder.location.rpartition("/")[2]
    if not last:
        note = "none of its metadata files can be read: restore one from a backup"
        return RebuiltTable(name, "damaged", folder.location, unreadable=tuple(torn), note=note)
    chosen, missing = _whole(io, last)
    if DECLARATION not in chosen.metadata.properties:
        return _rebuilt(chosen, name, "foreign")
    try:
        spec = parse_table(msgspec.json.decode(chosen.metadata.properties[DECLARATION]))
    except (FrazilError, msgspec.DecodeError) as error:
        note = f"its declaration is not one of this version: {error}"
        return replace(_rebuilt(chosen, name, "damaged"), note=note)
    result = replace(
        _rebuilt(chosen, spec.name, "registered"),
        unreadable=tuple(torn),
        rivals=tuple(state.location for state in last if state is not chosen),
        missing_files=missing.files,
    )
    if path_of(chosen.metadata.location.rstrip("/")) != path_of(folder.location):
        note = f"it was moved: its files say that they lie in {chosen.metadata.location}. Put the folder there"
        return replace(result, state="damaged", note=note)
    if missing.manifests:
        note = f"{missing.manifests} manifests of its last snapshot are gone, {missing.example} for one: restore them"
        return replace(result, state="damaged", note=note)
    return _Unregistered(folder, chosen, spec, result)


def _whole(io: FileIO, last: list[MetadataCandidate]) -> tuple[MetadataCandidate, Missing]:
    """The first state all of whose files are there; never one with a lower watermark than another has."""
    looked = []
    for state in last:
        if state.watermark == last[0].watermark:
            looked.append((state, find_missing_files(io, state.metadata)))
            if not looked[-1][1].any:
                return looked[-1]
    return looked[0]


def _rebuilt(candidate: MetadataCandidate, name: str, state: str) -> RebuiltTable:
    current = candidate.metadata.current_snapshot()
    return RebuiltTable(
        name=name,
        state=state,
        location=candidate.metadata.location,
        metadata=candidate.location,
        rows=int(summary_of(current).get("total-records") or 0) if current else 0,
        snapshots=len(candidate.metadata.snapshots),
        columns=len(candidate.metadata.schema().fields),
        watermark=candidate.watermark,
    )


def _registered(lake: Lake, io: FileIO, tables: list[_Unregistered], *, dry_run: bool) -> Iterator[RebuiltTable]:
    """Of each name the newest becomes the table. The others come back as dropped, as do those that were."""
    taken = set(lake.names())
    for table in sorted(tables, key=lambda table: table.age, reverse=True):
        name, result = table.spec.name, table.result
        if table.dropped_at is None and name in taken and table.never_used:
            yield replace(result, state="leftover", note="never used, and another table has its name")
            continue
        if table.dropped_at is not None or name in taken:
            name, result = hidden_name(name, table.hidden_at), replace(result, state="dropped")
        else:
            taken.add(name)
        if not dry_run:
            crash_point("before_register")
            done = lake.register(name, _numbered(io, table.state))
            crash_point("after_register")
            if not done:
                result = replace(result, state="already_there", note="another table took the name meanwhile")
        if result.missing_files:
            result = replace(
                result, state="damaged", note=f"{result.missing_files} of its data files are gone: restore them"
            )
        yield result


def _numbered(io: FileIO, state: MetadataCandidate) -> str:
    """The file to register. A copy has no number, and commits would count from 0 again: it becomes a commit's file."""
    if not state.is_copy:
        return state.location
    number = max((number_of(file) for file in state.log), default=-1) + 2
    folder = state.metadata.location.rstrip("/")
    location = f"{folder}/metadata/{number:05d}-{uuid.uuid4()}.metadata.json"
    with translated(f"write {location}"):
        ToOutputFile.table_metadata(state.metadata, io.new_output(location))
    crash_point("after_numbering")
    return location
