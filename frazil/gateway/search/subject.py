"""What a shelf is about: the table behind it, as far as its searches depend on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.embedding import OWN, Model
from frazil.events.declaration import Chunking, TableSpec
from frazil.lake.catalog import LakeTable
from frazil.serving import Profile, search
from frazil.serving.artifacts import ArtifactEntry
from frazil.tables import Source, source_of

if TYPE_CHECKING:
    from frazil.serving.search import Searchable


@dataclass(frozen=True)
class Subject:
    """Equal as long as one `Serving` can answer for it."""

    table: str
    source: Source
    """Another one is another table under the same name."""
    schema: pa.Schema
    key: tuple[str, ...]
    text: tuple[str, ...]
    chunk: Chunking
    vector: str | None
    """The column with the users' own vectors."""
    model: str = field(compare=False)
    """What is searched with before there is an artifact; afterwards the artifact says."""

    @classmethod
    def of(cls, table: LakeTable, spec: TableSpec, profile: Profile | None = None) -> Subject:
        searched = spec.searched
        assert searched is not None, "only of tables that are searched"
        declared = OWN if searched.vector is not None else searched.model
        return cls(
            table=table.name,
            source=source_of(table),
            schema=spec.row_schema(),
            key=spec.key if spec.kind == "entity" else ("_id",),
            text=spec.text,
            chunk=searched.chunk,
            vector=searched.vector,
            model=(profile.model if profile else None) or declared,
        )

    def is_of(self, entry: ArtifactEntry) -> bool:
        """Whether this artifact was made from this very table, and not from another that had its name."""
        return entry.cut.table_id in ("", self.source[0], self.source[1])

    def searchable(self, shelf: str, model: Model | None, *, own: bool) -> Searchable:
        """How its documents are searched with this model; `own`: by the vectors that came with them."""
        return search.Searchable(
            table=shelf,
            schema=self.schema,
            key=self.key,
            text=self.text,
            model=model,
            chunk=self.chunk,
            vector=self.vector if own else None,
        )
