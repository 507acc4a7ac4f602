"""Draft files: data files of a table that is not created or extended yet. Its columns are a guess until then.

Once the columns are known, the table is created in the folder of its draft, or extended, and `holds` checks whether the
files fit it. If they do not, `discard` deletes them; after a kill they are orphans of the table of the next try.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from frazil.events.declaration import TableSpec
from frazil.lake.bulk.data_files import FilePlan, WrittenFile, bare_plan
from frazil.lake.catalog.iceberg_files import file_system, path_of
from frazil.lake.catalog.lake import Lake, translated
from frazil.lake.catalog.schema import TABLE_PROPERTIES, evolve, iceberg_schema, partition_spec
from frazil.lake.catalog.table import LakeTable


def draft_location(lake: Lake, name: str, mark: str) -> str:
    """The folder for a table that does not exist yet. The same mark gives the same folder, unless a table is in it: a
    dropped one keeps its folder too."""
    marked = lake.new_location(name, mark)
    return lake.new_location(name) if _is_taken(lake, marked) else marked


def plan_draft_files(lake: Lake, spec: TableSpec, location: str) -> FilePlan:
    """The plan of the files of a table that will be created there."""
    schema = iceberg_schema(spec)
    metadata = new_table_metadata(
        schema, partition_spec(spec, schema), UNSORTED_SORT_ORDER, location, dict(TABLE_PROPERTIES)
    )
    return bare_plan(lake, spec.name, metadata, {})


def plan_extended_files(lake: Lake, table: LakeTable, spec: TableSpec) -> FilePlan:
    """The plan of the files of a table that will be extended to this declaration."""
    transaction = table.iceberg.transaction()  # never committed
    evolve(transaction, table.spec, spec)
    return bare_plan(lake, table.name, transaction.table_metadata, table.iceberg.io.properties)


def holds(plan: FilePlan, table: LakeTable) -> bool:
    """Whether files of this plan are files of this table."""
    planned, created = plan.parsed, table.iceberg.metadata
    return (planned.location, planned.schema(), planned.spec()) == (created.location, created.schema(), created.spec())


def discard(plan: FilePlan, files: Iterable[WrittenFile]) -> None:
    """Delete files that will not be published. Those that cannot be reached are left to the search for orphans."""
    io = load_file_io(dict(plan.io), plan.parsed.location)
    for file in files:
        with suppress(OSError):
            io.delete(file.path)


def forget_draft(lake: Lake, name: str, mark: str) -> None:
    """Delete what was drafted under this mark for a table that was never created."""
    location = lake.new_location(name, mark)
    if _is_taken(lake, location):
        return
    io = load_file_io(dict(lake.catalog.properties), location)
    with translated(f"delete drafts of {name}"), suppress(FileNotFoundError):
        file_system(io, location).delete_dir(path_of(location))


def _is_taken(lake: Lake, location: str) -> bool:
    folder = f"{path_of(location)}/"
    return any(path_of(metadata).startswith(folder) for metadata in lake.every_location().values())
