"""Tally of an embedding run: the outcome of its chunks, summed over its pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.pipeline.embeddings.plan import EmbedPlan
from frazil.pipeline.embeddings.recipe import Recipe
from frazil.pipeline.embeddings.task import EmbedDone


@dataclass
class Tally:
    """chunks = known + reused + embedded + quarantined, once all is done."""

    rows: int = 0
    chunks: int = 0
    known: int = 0
    reused: int = 0
    embedded: int = 0
    quarantined: int = 0
    left: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    published: int = 0
    """How many times vectors were published."""

    def add(self, done: Sequence[EmbedDone]) -> None:
        for piece in done:
            self.rows += piece.rows
            self.chunks += piece.chunks
            self.known += piece.known
            self.reused += piece.reused
            self.embedded += piece.embedded
            self.quarantined += piece.refused
            self.left += piece.left
            self.reasons.update(piece.reasons)
        accounted = self.known + self.reused + self.embedded + self.quarantined + self.left
        assert self.chunks == accounted, "chunks in = vectors out + quarantined"

    def body(self, recipe: Recipe, plan: EmbedPlan, seconds: float) -> dict[str, Any]:
        """As it is shown and journalled."""
        return {
            "table": recipe.spec.short_name,
            "model": recipe.name,
            "version": recipe.version,
            "dims": recipe.dims,
            "snapshot_id": plan.up_to.snapshot_id,
            "looked_at": "all rows" if plan.is_whole else "new rows",
            "rows": self.rows,
            "chunks": self.chunks,
            "known": self.known,
            "reused": self.reused,
            "embedded": self.embedded,
            "quarantined": self.quarantined,
            "reasons": dict(self.reasons.most_common()),
            "published": self.published,
            "seconds": round(seconds, 3),
            "chunks_per_second": round(self.embedded / seconds, 1) if seconds else None,
        }
