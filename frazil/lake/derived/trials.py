"""Trials: the measurements on the vectors of a table, as rows of a derived table. Rows are only added.

Some trials at a time are one file and one commit. Whoever is killed has journalled whole batches or nothing; and a
batch that was published is known by its id, so that doing it again adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from frazil.crash import crash_point
from frazil.errors import Unavailable
from frazil.events import conform
from frazil.events.declaration import TableSpec, parse_table, trials_of
from frazil.lake.bulk.data_files import FileWriter, plan_files
from frazil.lake.bulk.load_commit import Load, publish_load
from frazil.lake.catalog.entity import find_table
from frazil.lake.catalog.lake import Lake
from frazil.lake.catalog.table import LakeTable

_COLUMNS: Mapping[str, Any] = {
    "run": {"type": "string", "description": "the job that it was part of"},
    "trial": {"type": "string", "description": "unique in its run"},
    "tried_at": "timestamp",
    "purpose": {"type": "string", "description": "index: one way to index; model: one model against others"},
    "state": {"type": "string", "description": "ok, failed, too_long or skipped"},
    "reason": {"type": "string", "description": "why it is not ok"},
    "shelf": {"type": "string", "description": "whose index it would be: the table's, or that of a profile"},
    "model": "string",
    "version": "string",
    "dims": "int",
    "vectors": {"type": "long", "description": "how many were tried with"},
    "of_vectors": {"type": "long", "description": "how many there were; more than were tried with if it was a sample"},
    "source": {"type": "string", "description": "artifact or rows: where the vectors came from"},
    "generation": {"type": "string", "description": "of the artifact"},
    "snapshot_id": {"type": "long", "description": "of the table, or of its embeddings if they came from rows"},
    "kind": "string",
    "config": {"type": "string", "description": "the index and all its parameters, as JSON"},
    "is_default": {"type": "bool", "description": "what is built where nobody chose"},
    "queries": "int",
    "asked": {"type": "string", "description": "where the queries came from: sentences, mixed or given"},
    "eval_set": {"type": "string", "description": "equal for the same queries"},
    "k": "int",
    "recall": {"type": "double", "description": "the share of the true k nearest that was found"},
    "hit_rate": {"type": "double", "description": "the share of queries whose document was among the k"},
    "mrr": {"type": "double", "description": "the mean of 1 / the place of that document"},
    "p50_ms": "double",
    "p99_ms": "double",
    "searches": {"type": "int", "description": "how many were timed"},
    "build_seconds": "double",
    "size_bytes": {"type": "long", "description": "on disk: the index and the vectors"},
    "index_bytes": {"type": "long", "description": "of the index alone"},
    "memory_bytes": {"type": "long", "description": "resident after the searches, above an empty process"},
    "build_memory_bytes": {"type": "long", "description": "at the peak of the build, above an empty process"},
    "threads": {"type": "int", "description": "of the build; a search has one"},
    "machine": {"type": "string", "description": "cpu, cores and memory, as JSON"},
    "engines": {"type": "string", "description": "versions, as JSON"},
}


def trials_spec(spec: TableSpec) -> TableSpec:
    """The table for the trials of this one."""
    return parse_table(
        {
            "name": trials_of(spec.name),
            "kind": "bulk",
            "columns": _COLUMNS,
            "description": f"What was measured on the vectors of {spec.short_name}.",
            "owner": spec.owner,
        }
    )


def trials_table(lake: Lake, name: str) -> LakeTable | None:
    """The journal of the trials of `name`; None before the first."""
    return find_table(lake, trials_of(name))


def read_trials(lake: Lake, name: str, *, run: str | None = None) -> list[dict[str, Any]]:
    """The trials of a table, or of one of its runs, in the order in which they were tried."""
    table = trials_table(lake, name)
    if table is None:
        return []
    found = [row for batch in table.scan() for row in batch.to_pylist() if run is None or row["run"] == run]
    return sorted(found, key=lambda row: (row["tried_at"], row["run"], row["trial"]))


def journal_trials(lake: Lake, spec: TableSpec, run: str, trials: Sequence[Mapping[str, Any]]) -> None:
    """Add the trials of a run in one commit. `Unavailable` if another does the same run: it is to look again."""
    if not trials:
        return
    table = lake.create_bulk(trials_spec(spec))
    known = {row["trial"] for row in read_trials(lake, spec.name, run=run)}
    schema = table.spec.row_schema()
    with FileWriter(plan_files(lake, table)) as writer:
        columns = {field.name: pa.array([row.get(field.name) for row in trials], field.type) for field in schema}
        writer.write(conform(pa.table(columns), schema))
    crash_point("before_trials_publish")
    identity = " ".join((run, *sorted(str(row["trial"]) for row in trials)))
    load = Load(f"trials-{blake2b(identity.encode(), digest_size=12).hexdigest()}", len(trials))
    publish_load(lake, table.name, load, writer.written, check=_none_but(run, known))
    crash_point("after_trials_publish")


def _none_but(run: str, known: set[str]) -> Callable[[LakeTable], None]:
    """A check that no other process has added trials of this run."""

    def check(current: LakeTable) -> None:
        rows = (row for batch in current.scan(["run", "trial"]) for row in batch.to_pylist())
        if {row["trial"] for row in rows if row["run"] == run} != known:
            raise Unavailable(
                f"another process continues the run {run}",
                code="trials_moved",
                hint="it is tried again from the trials that are stored",
            )

    return check
