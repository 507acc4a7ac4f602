"""Data files of a table before it is made or grown: its shape is only supposed while they are written.

Once the shape is known, the table is made in the folder of its draft, or grown, and `holds` tells whether the files are
its own. If they are not, `discard` takes them away; after a kill they are orphans of the table that the next try makes.
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
    """The folder for a table that is not made yet. The same mark gives the same one, unless a table lives there: also a
    dropped one keeps its folder to itself."""
    marked = lake.new_location(name, mark)
    return lake.new_location(name) if _lived_in(lake, marked) else marked


def plan_draft_files(lake: Lake, spec: TableSpec, location: str) -> FilePlan:
    """The plan of the files of a table that will be made there."""
    schema = iceberg_schema(spec)
    metadata = new_table_metadata(
        schema, partition_spec(spec, schema), UNSORTED_SORT_ORDER, location, dict(TABLE_PROPERTIES)
    )
    return bare_plan(lake, spec.name, metadata, {})


def draft_grown(lake: Lake, table: LakeTable, spec: TableSpec) -> FilePlan:
    """The plan of the files of a table that will be grown to this declaration."""
    transaction = table.iceberg.transaction()  # never committed
    evolve(transaction, table.spec, spec)
    return bare_plan(lake, table.name, transaction.table_metadata, table.iceberg.io.properties)


def holds(plan: FilePlan, table: LakeTable) -> bool:
    """Whether files of this plan are files of this table."""
    supposed, made = plan.parsed, table.iceberg.metadata
    return (supposed.location, supposed.schema(), supposed.spec()) == (made.location, made.schema(), made.spec())


def discard(plan: FilePlan, files: Iterable[WrittenFile]) -> None:
    """Take away files that will not be published. What cannot be reached is left to the search for orphans."""
    io = load_file_io(dict(plan.io), plan.parsed.location)
    for file in files:
        with suppress(OSError):
            io.delete(file.path)


def forget_draft(lake: Lake, name: str, mark: str) -> None:
    """Take away what was drafted under this mark for a table that was never made."""
    location = lake.new_location(name, mark)
    if _lived_in(lake, location):
        return
    io = load_file_io(dict(lake.catalog.properties), location)
    with translated(f"take away drafts of {name}"), suppress(FileNotFoundError):
        file_system(io, location).delete_dir(path_of(location))


def _lived_in(lake: Lake, location: str) -> bool:
    folder = f"{path_of(location)}/"
    return any(path_of(metadata).startswith(folder) for metadata in lake.every_location().values())
