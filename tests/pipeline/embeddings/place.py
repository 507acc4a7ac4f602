"""A searched table on a real lake, rows for it without a bus, and the job that embeds it with tasks in this process."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from frazil.embedding import ModelSettings
from frazil.events import conform
from frazil.events.declaration import TableSpec, embeddings_of, parse_table, refused_embeddings_of
from frazil.lake.bulk import FileWriter, Load, Replaces, load_position, plan_files, publish_load
from frazil.lake.catalog import Lake, LakeTable, create_entity
from frazil.pipeline.embeddings import EmbeddingJobs
from frazil.registry import Job, submit_job
from frazil.requests import EMBED
from tests.pipeline.in_process import InProcessTasks

NOTES: dict[str, Any] = {
    "name": "notes",
    "columns": {"title": "string", "body": "string"},
    "text": ["title", "body"],
    "search": {"chunk": {"size": 60, "overlap": 0, "by": "sentence"}},
}
_numbers = itertools.count(1)


@dataclass
class Place:
    lake: Lake
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    piece_rows: int | None = None

    def declare(self, **changed: Any) -> LakeTable:
        spec = parse_table({**NOTES, **changed})
        if spec.kind == "entity":
            return create_entity(self.lake, spec, stream="s", identity="i").base
        return self.lake.create(spec, stream="s", identity="i")

    def add(self, rows: Sequence[Mapping[str, Any]], name: str = "main.notes", *, replace: bool = False) -> LakeTable:
        """Rows of a bulk load, whose positions are negative; or with positions of their own."""
        table = self.lake.table(name)
        with FileWriter(plan_files(self.lake, table)) as writer:
            writer.write(_rows(table.spec, rows))
        load = Load(f"load{next(_numbers)}", len(rows), Replaces.ALL if replace else Replaces.NOTHING)
        return publish_load(self.lake, name, load, writer.written).table

    def rewrite(self, name: str = "main.notes") -> None:
        """All rows into other files, as a compaction does, and the old ones gone, as after expiry."""
        before = self.lake.table(name)
        old = [task.file.file_path for task in before.iceberg.scan().plan_files()]
        rows = pa.Table.from_batches(list(before.scan()))
        with FileWriter(plan_files(self.lake, before)) as writer:
            writer.write(rows)
        publish_load(self.lake, name, Load("rewrite", rows.num_rows, Replaces.ALL), writer.written)
        for path in old:
            before.iceberg.io.delete(path)

    def ask(self, table: str = "notes", **options: Any) -> Job:
        return submit_job(
            self.lake.registry, EMBED.name, f"main.{table}", {"table": table, **options}, asked_by="someone"
        )

    def embed(self, table: str = "notes", **options: Any) -> dict[str, Any]:
        return self.job.run(self.ask(table, **options), lambda progress: None)

    @property
    def job(self) -> EmbeddingJobs:
        return EmbeddingJobs(self.lake, InProcessTasks(), self.models, piece_rows=self.piece_rows)

    def vectors(self, table: str = "main.notes") -> list[dict[str, Any]]:
        return self._stored(embeddings_of(table))

    def refused(self, table: str = "main.notes") -> list[dict[str, Any]]:
        return self._stored(refused_embeddings_of(table))

    def _stored(self, name: str) -> list[dict[str, Any]]:
        found = self.lake.table(name).iceberg.scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["model"], row["document"], row["chunk"], row["position"]))


def chunk_names(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["model"], row["version"], row["document"], row["chunk"], row["hash"]) for row in rows]


def _rows(spec: TableSpec, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    now = datetime.now(UTC)
    known = {"_seq": load_position(now), "_op": "insert", "_ts": now, "_received_at": now}
    full = [{"_id": f"id{next(_numbers)}", **known, **row} for row in rows]
    schema = spec.row_schema()
    names = [name for name in schema.names if any(name in row for row in full)]
    columns = {name: pa.array([row.get(name) for row in full], schema.field(name).type) for name in names}
    return conform(pa.table(columns), schema)
