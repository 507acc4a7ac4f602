"""Embed plan: the rows that a run embeds, in pieces of bounded work, and what is known of their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.embedding import document_columns, recipe_of
from frazil.lake.bulk import FileRange, plan_files, ranges_since, sequence_number, whole_files
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.derived import EmbeddingProgress, embedded_up_to
from frazil.pipeline.embeddings.embedded_chunks import KnownFiles
from frazil.pipeline.embeddings.recipe import Recipe
from frazil.pipeline.embeddings.task import EmbedPiece

QUICK_ROWS = 10_000
SLOW_ROWS = 2_000
"""Rows of a piece, and so what a kill can cost: seconds of wordllama, a minute or two of what is slower or is paid."""
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class EmbedPlan:
    """The rows of one snapshot that a model has not looked at, and where that brings it."""

    up_to: EmbeddingProgress
    pieces: tuple[tuple[FileRange, ...], ...]
    is_whole: bool
    """All rows are looked at, not only those that came since the last run."""
    has_progress: bool
    """There is something to remember once all pieces are done."""

    @property
    def rows(self) -> int:
        return sum(part.rows for piece in self.pieces for part in piece)


def plan_rows(
    table: LakeTable, embeddings: LakeTable, recipe: Recipe, *, piece_rows: int, whole: bool = False
) -> EmbedPlan:
    """What is new in the table as it is, for this model and this way of cutting; or all of it."""
    cutting = recipe_of(recipe.spec, recipe.name)
    last = embedded_up_to(embeddings, recipe.name)
    is_known = last is not None and last.covers(table, recipe.version, cutting)
    since = last.sequence if last is not None and is_known and not whole else 0
    up_to = EmbeddingProgress(
        model=recipe.name,
        version=recipe.version,
        dims=recipe.dims,
        recipe=cutting,
        table=table.uuid,
        snapshot_id=table.snapshot_id,
        sequence=sequence_number(table),
        rows=table.rows,
        at=recipe.at,
    )
    columns = document_columns(recipe.spec, recipe.name)
    ranges = ranges_since(table, since, columns, max_rows=piece_rows, max_bytes=_PIECE_BYTES)
    has_progress = not since or last is None or last.snapshot_id != table.snapshot_id
    return EmbedPlan(up_to, tuple(_packed(ranges, piece_rows)), since == 0, has_progress)


def pieces_of(
    lake: Lake,
    table: LakeTable,
    recipe: Recipe,
    ranges: Sequence[tuple[FileRange, ...]],
    embeddings: LakeTable,
    refused: LakeTable,
    *,
    is_rewrite: bool = False,
) -> list[EmbedPiece]:
    """Some of the pieces, with all that is known at this moment."""
    known = KnownFiles(
        vectors=plan_files(lake, embeddings),
        refused=plan_files(lake, refused),
        vector_files=tuple(whole_files(embeddings, {"model": recipe.name})),
        refused_files=tuple(whole_files(refused, {"model": recipe.name})),
        version=recipe.version,
        is_rewrite=is_rewrite,
    )
    source = plan_files(lake, table)
    return [EmbedPiece(recipe, source, part, known) for part in ranges]


def _packed(ranges: Sequence[FileRange], most: int) -> list[tuple[FileRange, ...]]:
    """Ranges of small files together, up to so many rows."""
    packs: list[list[FileRange]] = []
    rows = most
    for part in ranges:
        if rows + part.rows > most:
            packs.append([])
            rows = 0
        packs[-1].append(part)
        rows += part.rows
    return [tuple(pack) for pack in packs]
