"""Embed task: rows of some files become chunks, chunks become vectors, vectors become files.

Every chunk is counted: it was known, its content had a vector elsewhere, it got one, it was refused with a reason, or
the model stopped before its turn. What was embedded until then is stored: a provider is paid for it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from frazil.crash import crash_point
from frazil.embedding import (
    ChunkColumns,
    Embedded,
    Floats,
    checked_vectors,
    cut_rows,
    dims_of,
    document_columns,
    embedded_in_batches,
    keys_of_chunks,
    open_model,
    user_vector_chunks,
    without_deleted,
)
from frazil.errors import FrazilError, Unavailable
from frazil.events import id_keys
from frazil.lake.bulk import FilePlan, FileRange, WrittenFile, read_range
from frazil.pipeline.embeddings.chunk_writer import ChunkRefusal, ChunkWriter
from frazil.pipeline.embeddings.embedded_chunks import EmbeddedChunks, KnownFiles
from frazil.pipeline.embeddings.recipe import Recipe

_BATCH = 256
"""How many chunks a model on this machine is given at once."""
_REMEMBERED_BYTES = 64 << 20


@dataclass(frozen=True)
class EmbedPiece:
    recipe: Recipe
    source: FilePlan
    ranges: tuple[FileRange, ...]
    known: KnownFiles


@dataclass(frozen=True)
class Stopped:
    """Why a piece is not finished: an error of ours, on its way from a task."""

    kind: type[FrazilError]
    message: str
    code: str
    hint: str

    def error(self) -> FrazilError:
        return self.kind(self.message, code=self.code, hint=self.hint)


@dataclass
class EmbedDone:
    """The outcome of the chunks of a piece: chunks = known + reused + embedded + refused + left."""

    rows: int = 0
    chunks: int = 0
    known: int = 0
    reused: int = 0
    embedded: int = 0
    refused: int = 0
    left: int = 0
    """Chunks that were cut and not come to."""
    reasons: Counter[str] = field(default_factory=Counter)
    files: list[WrittenFile] = field(default_factory=list)
    refused_files: list[WrittenFile] = field(default_factory=list)
    content: str = ""
    refused_content: str = ""
    stopped: Stopped | None = None


def embed_piece(piece: EmbedPiece) -> EmbedDone:
    """Embed what is new in the piece. Done again it writes other files with the same rows."""
    with ChunkWriter(piece.recipe, piece.known) as writer:
        done = _Work(piece, writer).done()
        crash_point("before_embed_files_close")
    done.files, done.refused_files = writer.files, writer.refused_files
    done.content, done.refused_content = writer.content, writer.refused_content
    return done


def own_dims(piece: EmbedPiece) -> int | None:
    """How many numbers the first vector in these ranges has; None where there is no vector."""
    for rows in _rows(piece):
        found = dims_of(user_vector_chunks(piece.recipe.spec, rows)[1])
        if found is not None:
            return found
    return None


class _Work:
    def __init__(self, piece: EmbedPiece, writer: ChunkWriter) -> None:
        self._piece = piece
        self._recipe = piece.recipe
        self._writer = writer
        self._known = EmbeddedChunks(piece.known)
        self._done = EmbedDone()
        self._lately: OrderedDict[str, Floats] = OrderedDict()
        """Vectors by the hash of their content, for content that is repeated in the same piece."""

    def done(self) -> EmbedDone:
        done = self._done
        try:
            for rows in _rows(self._piece):
                done.rows += rows.num_rows
                if self._recipe.is_own:
                    self._take(rows)
                else:
                    self._embed(cut_rows(self._recipe.spec, rows))
        except FrazilError as error:
            # Whatever it was, the model or a file that was compacted away: what is embedded by now is kept.
            kind = Unavailable if isinstance(error, Unavailable) else type(error)
            done.stopped = Stopped(kind, error.message, error.code, error.hint)
        done.left = done.chunks - done.known - done.reused - done.embedded - done.refused
        assert done.left >= 0 and (done.left == 0 or done.stopped is not None), "a chunk was lost"
        return done

    def _take(self, rows: pa.Table) -> None:
        found, vectors = user_vector_chunks(self._recipe.spec, rows)
        new = self._unknown(found)
        self._keep(found, new, checked_vectors([vectors[place] for place in new], self._recipe.dims), {})

    def _embed(self, found: ChunkColumns) -> None:
        new = self._reused(found, self._unknown(found))
        to_embed, twins = _parted(found, new)
        for part in self._answers([found.passage[place] for place in to_embed]):
            self._keep(found, to_embed[part.first : part.first + part.texts], part, twins)
            crash_point("amid_embed")

    def _answers(self, passages: list[str]) -> Iterator[Embedded]:
        spec = self._recipe.model
        assert spec is not None
        batch = spec.settings.batch if spec.settings.provider == "openai" else _BATCH
        return embedded_in_batches(open_model(spec), passages, batch=batch) if passages else iter(())

    def _unknown(self, found: ChunkColumns) -> list[int]:
        """The places in the cut of the chunks that nothing is known of yet."""
        self._done.chunks += len(found)
        if not len(found):
            return []
        keys = keys_of_chunks(pa.array(found.document), pa.array(found.chunk, pa.int32()), pa.array(found.hash))
        is_known = self._known.has(keys)
        self._done.known += int(is_known.sum())
        return [int(place) for place in np.flatnonzero(~is_known)]

    def _reused(self, found: ChunkColumns, new: list[int]) -> list[int]:
        """Give chunks the vector that their content has elsewhere; those that come back need the model."""
        if not new:
            return []
        contents = id_keys(pa.array([found.hash[place] for place in new]))
        which, vectors = self._known.vectors(contents, self._recipe.dims)
        have = {new[index]: vector for index, vector in zip(which.tolist(), vectors, strict=True)}
        for place in new:
            if place not in have and found.hash[place] in self._lately:
                have[place] = self._lately[found.hash[place]]
        if have:
            self._writer.write(found, list(have), np.stack(list(have.values())))
            self._done.reused += len(have)
        return [place for place in new if place not in have]

    def _keep(self, found: ChunkColumns, to_embed: list[int], part: Embedded, twins: dict[str, list[int]]) -> None:
        """Write the outcome of the embedded chunks, and of those with the same text."""
        rows = [int(index) - part.first for index in part.of]
        good = [to_embed[row] for row in rows]
        self._writer.write(found, good, part.vectors)
        self._done.embedded += len(good)
        copies = [(twin, row) for row, place in enumerate(good) for twin in twins.pop(found.hash[place], ())]
        self._writer.write(found, [twin for twin, _ in copies], part.vectors[[row for _, row in copies]])
        self._done.reused += len(copies)
        refusals = []
        for failure in part.failed:
            place = to_embed[failure.index - part.first]
            for refused in (place, *twins.pop(found.hash[place], ())):
                refusals.append(ChunkRefusal(refused, failure.code, failure.reason))
        self._writer.refuse(found, refusals)
        self._done.refused += len(refusals)
        self._done.reasons.update(refusal.code for refusal in refusals)
        if not self._recipe.is_own:
            self._remember([found.hash[place] for place in good], part.vectors)

    def _remember(self, hashes: list[str], vectors: Floats) -> None:
        self._lately.update(zip(hashes, vectors, strict=True))
        while len(self._lately) * self._recipe.dims * 4 > _REMEMBERED_BYTES:
            self._lately.popitem(last=False)


def _parted(found: ChunkColumns, new: list[int]) -> tuple[list[int], dict[str, list[int]]]:
    """Of chunks with the same text the first one, and the places of the others by their hash."""
    to_embed: dict[str, int] = {}
    twins: dict[str, list[int]] = {}
    for place in new:
        if to_embed.setdefault(found.hash[place], place) != place:
            twins.setdefault(found.hash[place], []).append(place)
    return list(to_embed.values()), twins


def _rows(piece: EmbedPiece) -> Iterator[pa.Table]:
    spec = piece.recipe.spec
    every = spec.row_schema()
    # Files of an entity have no column that is never null; to us that makes no difference.
    schema = pa.schema([every.field(name).with_nullable(True) for name in document_columns(spec, piece.recipe.name)])
    for wanted in piece.ranges:
        for rows in read_range(piece.source, wanted, schema):
            yield without_deleted(rows)
