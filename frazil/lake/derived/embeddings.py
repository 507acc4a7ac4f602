"""Embeddings of a searched table: a table of the vectors of its chunks, and one of the chunks that have none.

    vectors     document, chunk, start, end, text, hash, model, version, dims, vector, position, embedded_at
    quarantine  document, chunk, start, end, text, hash, model, version, code, reason, position, failed_at

A row says what a chunk was when it was embedded. A chunk of today has its vector in the row of the same document,
chunk, hash, model and version; rows of chunks that changed or went stay until a sweep takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from frazil.crash import crash_point
from frazil.events.declaration import (
    TableSpec,
    dead_letters_of,
    embeddings_of,
    parse_table,
    refused_embeddings_of,
    trials_of,
)
from frazil.lake.bulk.file_ranges import came_after, rows_by
from frazil.lake.bulk.load_commit import Load, Replaces, publish_load
from frazil.lake.catalog.entity import find_table
from frazil.lake.catalog.lake import Lake
from frazil.lake.catalog.table import LakeTable

_UP_TO = "frazil.embedded."
_CHUNK = {
    "document": {"type": "string", "description": "the _id of a row; of an entity its key, as JSON"},
    "chunk": {"type": "int", "description": "its number in the document"},
    "start": {"type": "int", "description": "where it begins in the document's text"},
    "end": {"type": "int", "description": "where it ends there"},
    "text": "string",
    "hash": {"type": "string", "description": "of what was given to the model"},
    "model": "string",
    "version": "string",
    "position": {"type": "long", "description": "the _seq of the row that it was cut from"},
}


@dataclass(frozen=True)
class EmbeddingProgress:
    """How far one model has come: every row of this snapshot, and of all before it, was looked at."""

    model: str
    version: str
    dims: int
    recipe: str
    """How the rows were cut into chunks; another one makes other chunks of rows that were looked at."""
    table: str
    """The uuid of the table whose rows they are."""
    snapshot_id: int | None
    sequence: int
    rows: int
    """How many rows the table had."""
    at: datetime

    def covers(self, table: LakeTable, version: str, recipe: str) -> bool:
        """Whether what came before need not be looked at again."""
        is_same = (self.table, self.version, self.recipe) == (table.uuid, version, recipe)
        return is_same and came_after(table, self.snapshot_id, self.sequence)

    def property(self) -> dict[str, str | None]:
        return {_UP_TO + self.model: msgspec.json.encode(asdict(self)).decode()}


def embeddings_spec(spec: TableSpec) -> TableSpec:
    """The table for the vectors of this one."""
    columns = {
        **_CHUNK,
        "dims": "int",
        "vector": {"type": "list<float>", "description": "of length 1"},
        "embedded_at": "timestamp",
    }
    return _derived_spec(spec, embeddings_of(spec.name), columns, f"The vectors of {spec.short_name}.")


def refused_embeddings_spec(spec: TableSpec) -> TableSpec:
    """The table for the chunks of this one that no vector was made of."""
    columns = {**_CHUNK, "code": "string", "reason": "string", "failed_at": "timestamp"}
    return _derived_spec(
        spec, refused_embeddings_of(spec.name), columns, f"Chunks of {spec.short_name} without a vector."
    )


def _derived_spec(spec: TableSpec, name: str, columns: Mapping[str, Any], description: str) -> TableSpec:
    return parse_table(
        {
            "name": name,
            "kind": "bulk",
            "columns": columns,
            "partition": ["model"],
            "description": description,
            "owner": spec.owner,
        }
    )


def embeddings_table(lake: Lake, name: str) -> LakeTable | None:
    """The table of the vectors of `name`; None before the first run."""
    return find_table(lake, embeddings_of(name))


def refused_embeddings_table(lake: Lake, name: str) -> LakeTable | None:
    return find_table(lake, refused_embeddings_of(name))


def embedded_up_to(embeddings: LakeTable | None, model: str) -> EmbeddingProgress | None:
    """How far the model has come; None if it never came to an end."""
    stored = embeddings.properties.get(_UP_TO + model) if embeddings is not None else None
    return msgspec.json.decode(stored, type=EmbeddingProgress) if stored else None


def embedding_models(lake: Lake, table: LakeTable) -> list[dict[str, Any]]:
    """The models that a table has vectors of: how many, of which version, and how far each has come."""
    embeddings, refused = embeddings_table(lake, table.name), refused_embeddings_table(lake, table.name)
    vectors = rows_by(embeddings, "model") if embeddings is not None else {}
    failed = rows_by(refused, "model") if refused is not None else {}
    found = []
    for model in sorted(vectors.keys() | failed.keys() | _finished(embeddings)):
        state = embedded_up_to(embeddings, model)
        found.append(
            {
                "model": model,
                "vectors": vectors.get(model, 0),
                "quarantined": failed.get(model, 0),
                "version": state.version if state else None,
                "dims": state.dims if state else None,
                "snapshot_id": state.snapshot_id if state else None,
                "last_run_at": state.at.isoformat() if state else None,
                "is_up_to_date": state is not None
                and state.table == table.uuid
                and state.snapshot_id == table.snapshot_id,
            }
        )
    return found


def _finished(embeddings: LakeTable | None) -> set[str]:
    properties = embeddings.properties if embeddings is not None else {}
    return {name.removeprefix(_UP_TO) for name in properties if name.startswith(_UP_TO)}


def forget_refusals(lake: Lake, name: str, model: str, job: str) -> tuple[LakeTable, LakeTable]:
    """Let a model try again what it refused; both tables as they are then. Done again by the same job it does nothing:
    what was refused since stays.

    The progress of the model is forgotten first: after a kill all rows are looked at.
    """
    state = _UP_TO + model

    def forget(current: LakeTable) -> bool:
        if state not in current.properties:
            return False
        with current.iceberg.transaction() as transaction:
            transaction.remove_properties(state)
        return True

    embeddings = lake.update_table(embeddings_of(name), forget)
    crash_point("after_embed_forget")
    refused = lake.table(refused_embeddings_of(name))
    if rows_by(refused, "model").get(model):
        load = Load(f"retry-{job}", 0, Replaces.PARTITION, partition={"model": model})
        refused = publish_load(lake, refused.name, load, []).table
    return embeddings, refused


def delete_embeddings(lake: Lake, name: str, model: str) -> int:
    """Take the vectors of one model away, and what is known of its failures; how many vectors it had.

    The state goes first, with the vectors: after a kill in between, what is left belongs to no run and goes when it is
    done again.
    """
    gone = 0
    at = datetime.now(UTC).timestamp()
    for table in (embeddings_table(lake, name), refused_embeddings_table(lake, name)):
        if table is None:
            continue
        held = rows_by(table, "model").get(model, 0)
        if not held and model not in _finished(table):
            continue
        load = Load(
            f"delete-{model}-{at:.6f}",
            0,
            Replaces.PARTITION,
            partition={"model": model},
            properties={_UP_TO + model: None},
        )
        publish_load(lake, table.name, load, [])
        crash_point("amid_embed_delete")
        gone = gone or held
    return gone


def drop_embeddings(lake: Lake, name: str) -> None:
    """Drop the derived tables of a table, before the table itself: they hold its text too."""
    for derived in _derived_names(name):
        if (table := find_table(lake, derived)) is not None:
            lake.drop(table.name)
            crash_point("amid_embed_drop")


def _derived_names(name: str) -> tuple[str, ...]:
    return embeddings_of(name), refused_embeddings_of(name), trials_of(name), dead_letters_of(name)


def undrop_embeddings(lake: Lake, name: str) -> None:
    """Bring back what was dropped with a table, where nothing has taken its place; else it is made again in time."""
    dropped = lake.dropped()
    for derived in _derived_names(name):
        if derived in dropped and find_table(lake, derived) is None:
            lake.undrop(derived)
