"""Generation: an artifact that is open and serves, until the last of its readers has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from frazil.errors import Conflict
from frazil.serving.artifacts.contents import Contents
from frazil.serving.artifacts.local_copies import LocalCopy
from frazil.serving.artifacts.parts.part import OpenPart
from frazil.serving.artifacts.parts.text_part import TextPart
from frazil.serving.artifacts.parts.vector_part import IndexPart
from frazil.serving.artifacts.register import ArtifactEntry
from frazil.serving.artifacts.verify import ArtifactRefused, Fault
from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.search.searchable import Key, Searchable
from frazil.serving.text.text_index import TextIndex
from frazil.serving.vectors.vector_index import VectorIndex

Mask = npt.NDArray[np.bool_]
# Arrow makes Python values without letting go of the interpreter: five hundred take 0.4 ms. Then we step
# back for a moment, so that a query that waits for the interpreter has it at once, and not after the 5 ms for
# which Python lets one thread run; a query needs it some ten times.
_AT_ONCE = 512
_MOMENT_SECONDS = 0.0001


class Generation:
    """Rows, chunks, vectors and indexes of one artifact. Threads share it; what it holds never changes."""

    def __init__(self, copy: LocalCopy, searchable: Searchable) -> None:
        """Open the files of a verified copy, which is released when the generation closes.

        Raises `ArtifactRefused` for an artifact that this table is not searched by, or that does not know the answers
        that its builder knew; and then the copy is released.
        """
        self.name = copy.manifest.generation
        self.manifest = copy.manifest
        self._copy = copy
        self._parts: dict[str, OpenPart] = {}
        self._readers = 0
        self._awaited = False
        self._retired = False
        self._closed = False
        self._changed = threading.Condition()
        try:
            self._open(searchable)
            self.check_canaries()
        except BaseException:
            self.retire()
            raise

    def _open(self, searchable: Searchable) -> None:
        self._must_fit(searchable)
        folder = self._copy.folder
        self.contents = Contents(folder)
        self.index: VectorIndex | None = None
        self.text: TextIndex | None = None
        try:
            if searchable.model is not None:
                opened = self._parts["index"] = IndexPart().open(folder)
                self.index = opened.index
            if (layout := searchable.layout) is not None:
                text = self._parts["text"] = TextPart(layout).open(folder)
                self.text = text.index
        except Exception as error:  # engines raise what they like; whatever it is, the part cannot serve
            raise self._refused("artifact_part_unreadable", str(error)) from error
        if self.text is not None and self.text.layout != searchable.layout:
            reason = f"its text index is over {self.text.layout}, and the table declares {searchable.layout}"
            raise self._refused("artifact_other_text", reason)
        documents = self.contents.chunks.column("document").to_numpy()
        self.documents: Ordinals = documents[: self.manifest.counts.vectors]
        """The row number of each chunk that has a vector."""
        self.is_row_by_row = np.array_equal(self.documents, np.arange(self.rows))
        """Each row is one chunk, and at the same place."""
        self._key = searchable.key
        self._hashes, self._by_hash = self._hashed_keys()
        # Now, and not by the first queries: a page that was never touched costs each of them a fault.
        np.add.reduce(self.contents.vectors[:, :1], axis=None)

    @property
    def rows(self) -> int:
        return self.manifest.counts.rows

    @property
    def watermark(self) -> int:
        return self.manifest.cut.watermark

    def check_canaries(self) -> None:
        """Count what the parts hold and run the canaries of the builder; raises `ArtifactRefused`."""
        counts = self.manifest.counts
        for name, part in self._parts.items():
            wanted = counts.vectors if name == "index" else counts.rows
            try:
                held = part.held
                answers = [(part.answer(canary), canary) for canary in self.manifest.canaries if canary.part == name]
            except Exception as error:
                raise self._refused(
                    "artifact_part_unreadable", f"the part {name!r} does not answer: {error}"
                ) from error
            if held != wanted:
                raise self._refused("artifact_counts", f"the part {name!r} holds {held} of {wanted}")
            for found, canary in answers:
                if found != canary.expected:
                    reason = f"the part {name!r} answers {found}, not {canary.expected}"
                    raise self._refused("artifact_canary", reason)

    def rows_of(self, keys: Sequence[Key]) -> Ordinals:
        """The row numbers of those of these documents that are in the artifact, in no particular order."""
        if not keys or not self.rows:
            return np.empty(0, np.int64)
        wanted = np.fromiter(map(hash, keys), dtype=np.int64, count=len(keys))
        first = np.searchsorted(self._hashes, wanted, side="left")
        last = np.searchsorted(self._hashes, wanted, side="right")
        likely = [int(row) for low, high in zip(first, last, strict=True) for row in self._by_hash[low:high]]
        if not likely:
            return np.empty(0, np.int64)
        known = set(keys)
        found = self.contents.take_rows(likely, self._key)
        really = [key in known for key in zip(*(column.to_pylist() for column in found.columns), strict=True)]
        return np.array(likely, dtype=np.int64)[np.array(really, dtype=np.bool_)]

    def chunks_of(self, rows: Mask) -> Bitmap:
        """The chunks with a vector that belong to these rows."""
        return Bitmap.of_mask(rows if self.is_row_by_row else rows[self.documents])

    def enter(self) -> bool:
        """Begin to read; False when it is closed already, and another one serves."""
        with self._changed:
            if self._closed:
                return False
            self._readers += 1
            return True

    def leave(self) -> None:
        with self._changed:
            self._readers -= 1
            if self._awaited:
                self._changed.notify_all()
            else:
                self._close_if_over()

    def retire(self) -> None:
        """Nobody new will come: close it when the last reader has left, which may be now.

        Closing unmaps hundreds of megabytes. Whoever waits in `drained` does it; else the last reader must.
        """
        with self._changed:
            self._retired = True
            self._close_if_over()

    def drained(self, timeout_seconds: float) -> bool:
        """Wait until it is closed; False if there are still readers."""
        with self._changed:
            self._awaited = True
            try:
                self._changed.wait_for(lambda: self._closed or not self._readers, timeout_seconds)
            finally:
                self._awaited = False
                self._close_if_over()
            return self._closed

    @property
    def closed(self) -> bool:
        return self._closed

    def _close_if_over(self) -> None:
        if not self._retired or self._readers or self._closed:
            return
        self._closed = True
        for part in self._parts.values():
            part.close()
        self._parts.clear()
        # The memory goes with the last reference, of which there is none outside: answers are copies.
        for name in ("contents", "index", "text", "documents", "_hashes", "_by_hash"):
            self.__dict__.pop(name, None)
        self._copy.release()
        self._changed.notify_all()

    def _hashed_keys(self) -> tuple[Ordinals, Ordinals]:
        """The hash of each row's key, sorted, and whose it is: 16 bytes a row, where a dictionary takes 150."""
        table = self.contents.rows.select(list(self._key))
        hashes = np.empty(table.num_rows, np.int64)
        done = 0
        for batch in table.to_batches(max_chunksize=_AT_ONCE):
            keys = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            hashes[done : done + batch.num_rows] = np.fromiter(map(hash, keys), np.int64, batch.num_rows)
            done += batch.num_rows
            time.sleep(_MOMENT_SECONDS)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def _must_fit(self, searchable: Searchable) -> None:
        model, built = searchable.model, self.manifest.model
        used = None if model is None else (model.name, model.version, model.dims)
        made = None if built is None else (built.name, built.version, built.dims)
        if used is not None and used != made:
            raise self._refused("artifact_other_model", f"it was built with the model {made}, and searches use {used}")
        missing = {*searchable.key, *searchable.text} - {column.name for column in self.manifest.schema}
        if missing:
            raise self._refused("artifact_other_schema", f"it has no column {', '.join(sorted(missing))}")

    def _refused(self, code: str, reason: str) -> ArtifactRefused:
        return ArtifactRefused(self._copy.folder, [Fault(code, reason)])


def must_not_be_older(current: Generation, entry: ArtifactEntry) -> None:
    """Refuse an artifact that is older than the one that serves."""
    cut = current.manifest.cut
    same = (cut.stream, cut.table_id) == (entry.cut.stream, entry.cut.table_id)
    # Positions of two streams cannot be compared: then the newer artifact is of the newer stream.
    older = entry.cut.watermark < cut.watermark if same else entry.generation < current.name
    if older:
        raise Conflict(
            f"the artifact {entry.generation} is older than {current.name}, which serves",
            code="artifact_older",
            hint="to go back on purpose: frazil artifacts rollback",
        )
