"""Purge of a dropped table: its files are deleted, then its row of the catalog.

The row gets another name first, so that nobody can undrop the table while it is being deleted. Metadata is deleted
after data, and the row last: after a kill the next purge finds the rest by the row.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyarrow.fs import FileInfo, FileType
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from frazil.crash import crash_point
from frazil.errors import Conflict, NotFound
from frazil.events.declaration import (
    DROPPED_NAMESPACE,
    dead_letters_of,
    embeddings_of,
    history_of,
    refused_embeddings_of,
    trials_of,
)
from frazil.lake.catalog.iceberg_files import DAMAGED, file_system, listed, path_of
from frazil.lake.catalog.lake import Lake, translated
from frazil.lake.catalog.table import STREAM

# No name of a dropped table ends so: to list and to undrop, the table is not there.
_BEGUN = "-purged"


@dataclass(frozen=True)
class Purge:
    """The files and the stream of one dropped table that a purge deletes."""

    hidden: str
    location: str
    uuid: str | None
    """None where an earlier purge was cut off after its metadata; its stream is gone then."""
    stream: str | None
    files: int
    bytes: int

    def body(self) -> dict[str, Any]:
        return dict(vars(self))


def plan_purge(lake: Lake, name: str) -> list[Purge]:
    """All dropped tables of this name, and what earlier purges left. A table that is not dropped is never purged.

    An entity goes with its histories, and what is searched with its vectors and trials.
    """
    derived = (
        history_of(name),
        embeddings_of(name),
        refused_embeddings_of(name),
        trials_of(name),
        dead_letters_of(name),
    )
    hidden = [entry for other in (*derived, name) for entry in _hidden(lake, other)]
    if not hidden:
        raise NotFound(
            f"no dropped table is named {name.removeprefix('main.')!r}",
            code="table_not_found",
            hint="frazil tables list --dropped; a table must be dropped before it is purged",
        )
    return [_planned(lake, entry) for entry in hidden]


def _hidden(lake: Lake, name: str) -> list[str]:
    begun = f"{DROPPED_NAMESPACE}.{name.replace('.', '-')}-"
    left = [
        full.partition(".")[2] for full in lake.every_location() if full.startswith(begun) and full.endswith(_BEGUN)
    ]
    return [*lake.dropped().get(name, ()), *left]


def _planned(lake: Lake, hidden: str) -> Purge:
    every = lake.every_location()
    metadata_location = every[f"{DROPPED_NAMESPACE}.{hidden}"]
    location = metadata_location.rpartition("/metadata/")[0]
    _check_own(lake, every, location)
    io = load_file_io(lake.catalog.properties, lake.warehouse.url)
    with translated(f"look at {hidden}"):
        known = _metadata(io, metadata_location)
        files = [file for file in listed(io, location, below=True) if file.type == FileType.File]
    return Purge(
        hidden=hidden,
        location=location,
        uuid=str(known.table_uuid) if known else None,
        stream=known.properties.get(STREAM) or None if known else None,
        files=len(files),
        bytes=sum(file.size or 0 for file in files),
    )


def _metadata(io: FileIO, location: str) -> TableMetadata | None:
    """None where an earlier purge deleted it, or where it is damaged."""
    try:
        return FromInputFile.table_metadata(io.new_input(location))
    except (FileNotFoundError, *DAMAGED):
        return None


def _check_own(lake: Lake, every: dict[str, str], location: str) -> None:
    """A folder is deleted only if it lies in the warehouse and is nobody else's, nor around somebody else's."""
    folder = path_of(location).rstrip("/") + "/"
    inside = folder.startswith(path_of(lake.warehouse.url).rstrip("/") + "/")
    users = [name for name, other in every.items() if path_of(other).startswith(folder)]
    if not inside or len(users) != 1:
        raise Conflict(
            f"{location} is not a folder of this table alone",
            code="folder_shared",
            hint="remove the table's row from the catalog, and what may go of its files, by hand",
        )


def begin_purge(lake: Lake, planned: Purge) -> Purge:
    """Take the table away from `undrop`. `Conflict` if it was brought back since it was planned."""
    if planned.hidden.endswith(_BEGUN):
        return planned
    begun = replace(planned, hidden=planned.hidden + _BEGUN)
    with translated(f"purge {planned.hidden}"):
        try:
            lake.catalog.rename_table(f"{DROPPED_NAMESPACE}.{planned.hidden}", f"{DROPPED_NAMESPACE}.{begun.hidden}")
        except NoSuchTableError as error:
            raise Conflict(
                f"{planned.hidden} is not dropped any more", code="table_moved", hint="look at the plan again"
            ) from error
    crash_point("after_purge_began")
    return begun


def purge_files(lake: Lake, planned: Purge) -> int:
    """Delete the table's files, then its row; returns how many files were deleted. Again is fine."""
    io = load_file_io(lake.catalog.properties, lake.warehouse.url)
    deleted = 0
    with translated(f"purge {planned.hidden}"):
        store = file_system(io, planned.location)
        files = [file for file in listed(io, planned.location, below=True) if file.type == FileType.File]
        for file in sorted(files, key=_metadata_last):
            with suppress(FileNotFoundError):
                store.delete_file(file.path)
                deleted += 1
            crash_point("amid_purge")
        if not lake.warehouse.is_s3:
            with suppress(FileNotFoundError):
                store.delete_dir(path_of(planned.location))
        crash_point("before_purge_of_row")
        with suppress(NoSuchTableError):
            lake.catalog.drop_table(f"{DROPPED_NAMESPACE}.{planned.hidden}")
    return deleted


def _metadata_last(file: FileInfo) -> tuple[bool, str]:
    return "/metadata/" in file.path, file.path
