"""Orphans: files in the folder of a table that no retained metadata file leads to, left by crashes and lost stages.

Nothing is taken for an orphan by its name alone. A file must be older than the age guard, because one that is being
written now has no metadata yet; and the listing must contain every file of the current snapshot, because names that do
not fit together would make orphans of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pyarrow.fs import FileType
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from frazil.crash import crash_point
from frazil.errors import DataLoss
from frazil.lake.catalog.iceberg_files import address_of, file_system, listed, path_of
from frazil.lake.catalog.lake import translated
from frazil.lake.catalog.table import LakeTable
from frazil.lake.catalog.version_hint import HINT_FILE

_EXPORT = re.compile(r"v\d+\.metadata\.json")


@dataclass(frozen=True)
class Orphan:
    path: str
    """As the file system of the warehouse names it."""
    bytes: int
    modified_at: datetime

    @property
    def is_metadata(self) -> bool:
        return PurePosixPath(self.path).parent.name == "metadata"


def find_orphans(table: LakeTable, *, before: datetime) -> list[Orphan]:
    """The files last changed before this moment that nothing leads to."""
    with translated(f"search the files of {table.name} for orphans"):
        files, folder = _listing(table)
        by_path = {file.path: file for file in files}
        exports = [path for path in by_path if _is_export(path, folder)]
        needed, current = _needed(table, exports)
    if missing := sorted(current - by_path.keys()):
        raise DataLoss(
            f"{len(missing)} files of {table.name} are not in its folder: nothing is removed",
            code="files_missing",
            hint="`frazil doctor` names missing files; restore the warehouse from its backup",
            details={"file": missing[0]},
        )
    needed |= {*exports, f"{folder}/metadata/{HINT_FILE}"}
    return [file for file in files if file.modified_at < before and _described(file.path) not in needed]


def remove_orphans(table: LakeTable, orphans: Iterable[Orphan]) -> int:
    """Delete them; returns how many were still there."""
    files = file_system(table.iceberg.io, table.iceberg.location())
    removed = 0
    crash_point("before_orphans")
    with translated(f"remove orphans of {table.name}"):
        for orphan in orphans:
            with suppress(FileNotFoundError):
                files.delete_file(orphan.path)
                removed += 1
            crash_point("amid_orphans")
    crash_point("after_orphans")
    return removed


def _listing(table: LakeTable) -> tuple[list[Orphan], str]:
    found = listed(table.iceberg.io, table.iceberg.location(), below=True)
    files = [
        Orphan(info.path, info.size, (info.mtime or datetime.now(UTC)).astimezone(UTC))
        for info in found
        if info.type == FileType.File
    ]
    return files, path_of(table.iceberg.location().rstrip("/"))


def _needed(table: LakeTable, exports: Iterable[str]) -> tuple[set[str], set[str]]:
    """All files that a retained metadata file leads to, itself among them; and those of the current snapshot alone."""
    io = table.iceberg.io
    metadata = table.iceberg.metadata
    locations = [entry.metadata_file for entry in metadata.metadata_log]
    copies = [address_of(path, like=table.iceberg.location()) for path in exports]
    retained = [metadata, *_read(table, [*locations, *copies])]
    needed = {path_of(table.metadata_location), *(path_of(location) for location in locations)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in {s.manifest_list: s for known in retained for s in known.snapshots}.values():
        needed.add(path_of(snapshot.manifest_list))
        try:
            manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
        except FileNotFoundError:
            if metadata.snapshot_by_id(snapshot.snapshot_id):
                raise
            # Expired since that metadata file was written: nobody reads it any more.
    for known in retained:
        needed |= {path_of(file.statistics_path) for file in (*known.statistics, *known.partition_statistics)}
    current_snapshot = metadata.current_snapshot()
    of_current = {m.manifest_path for m in current_snapshot.manifests(io)} if current_snapshot else set()
    of_any_kept = {m.manifest_path for s in metadata.snapshots for m in s.manifests(io)}
    current: set[str] = set()
    for path, manifest in manifests.items():
        needed.add(path_of(path))
        try:
            files = {path_of(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(io)}
        except FileNotFoundError:
            if path in of_any_kept:
                raise
            continue
        needed |= files
        if path in of_current:
            current |= {path_of(path), *files}
    return needed, current


def _read(table: LakeTable, locations: Iterable[str]) -> Iterator[TableMetadata]:
    for location in locations:
        with suppress(FileNotFoundError):  # commits clean up the oldest of the log beside us
            yield FromInputFile.table_metadata(table.iceberg.io.new_input(location))


def _is_export(path: str, folder: str) -> bool:
    at = PurePosixPath(path)
    return str(at.parent) == f"{folder}/metadata" and _EXPORT.fullmatch(at.name) is not None


def _described(path: str) -> str:
    """The file that a Hadoop checksum is about; any other file is about itself."""
    at = PurePosixPath(path)
    if at.name.startswith(".") and at.name.endswith(".crc"):
        return str(at.with_name(at.name[1:].removesuffix(".crc")))
    return path
