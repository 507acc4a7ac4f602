"""Generations of one shelf: what its searches are answered from, and the swap to a newer one.

The current state is one reference: a generation and the view of what is fresh beside it. A reader takes it once and
keeps it to the end of its answer. A swap opens the next generation beside the current one, rebinds the reference, and
lets the old one go when its last reader has left. Whatever fails before leaves the old one serving,
with the reason in the status.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from frazil.crash import crash_point
from frazil.errors import FrazilError, Unavailable
from frazil.serving.artifacts.local_copies import LocalCopies
from frazil.serving.artifacts.register import ArtifactEntry
from frazil.serving.search.fresh_documents import DocumentChange, FreshDocuments, FreshFull
from frazil.serving.search.generation import Generation, must_not_be_older
from frazil.serving.search.ranked_search import SearchState
from frazil.serving.search.searchable import Searchable
from frazil.serving.search.switch_interval import short_switch_interval


@dataclass(frozen=True)
class SwapFailure:
    """Why a generation was not taken, or was left again."""

    generation: str
    code: str
    reason: str
    at: float


@dataclass(frozen=True)
class ServingStatus:
    generation: str | None
    snapshot_id: int | None
    position: int
    fresh_documents: int
    draining: tuple[str, ...]
    """Generations that are over and still have readers."""
    trouble: SwapFailure | None
    """Of the last swap or check that failed, until one succeeds: the table is degraded."""


@dataclass(frozen=True)
class SwapResult:
    generation: str | None
    """None: without an artifact, everything that is searched is fresh."""
    previous: str | None
    seconds: float
    drained: bool
    """False: a reader still has the previous one, and closes it when it leaves."""


class ServedGenerations:
    """One table. Any thread may read; one feeds what is fresh; swaps come one after the other."""

    def __init__(
        self,
        searchable: Searchable,
        copies: LocalCopies,
        *,
        fresh: FreshDocuments | None = None,
        drain_seconds: float = 10.0,
    ) -> None:
        self.searchable = searchable
        self.fresh = FreshDocuments(searchable) if fresh is None else fresh
        self._copies = copies
        self._drain_seconds = drain_seconds
        self._swapping = threading.Lock()
        # Held only while the reference is rebound: never during a fetch, a model's answer or a search.
        self._rebinding = threading.Lock()
        self._view = self.fresh.view(None) if self.fresh.floor == 0 else None
        self._entry: ArtifactEntry | None = None
        self._previous: ArtifactEntry | None = None
        self._over: list[Generation] = []
        self._trouble: SwapFailure | None = None
        self._closed = False

    @contextmanager
    def reading(self) -> Iterator[SearchState]:
        """The current state, which stays whole until the reader leaves."""
        while True:
            view = self._view
            if view is None:
                raise Unavailable(
                    f"no generation of {self.searchable.table} is loaded", code="no_generation", hint="frazil build"
                )
            # One that closed in this very moment was replaced before: look again.
            if view.generation is None or view.generation.enter():
                break
        try:
            yield SearchState(self.searchable, view)
        finally:
            if view.generation is not None:
                view.generation.leave()

    def apply(self, changes: Iterable[DocumentChange], upto: int) -> None:
        """All changes below this position that were not applied yet; searches that begin afterwards see them all.

        Raises `FreshFull` if there is no room even without what only a rollback would need.
        """
        prepared = self.fresh.prepare(changes)
        with self._rebinding:
            try:
                self._view = self.fresh.apply(prepared, upto, self._view)
            except FreshFull:
                if self._view is not None and self._view.generation is not None:
                    self.fresh.trim(self._view.generation.watermark)
                self._view = self.fresh.apply(prepared, upto, self._view)

    def forget_older(self) -> None:
        """Keep only what the current generation needs: there is no going back from it then."""
        with self._rebinding:
            if self._view is not None and self._view.generation is not None:
                self.fresh.trim(self._view.generation.watermark)
                self._view = self.fresh.view(self._view.generation)

    def swap(self, entry: ArtifactEntry, *, going_back: bool = False) -> SwapResult:
        """Serve this generation: fetch, verify, open beside, rebind, check, drain, release.

        If it raises, what served before still does, and `status().trouble` has the reason. One that is older than the
        current one is refused (`artifact_older`), unless `going_back`.
        """
        with self._swapping, short_switch_interval():
            try:
                swapped = self._swap(entry, going_back=going_back)
            except Exception as error:
                self._trouble = _failure(entry.generation, error)
                raise
            self._trouble = None
            return swapped

    def check_canaries(self) -> SwapFailure | None:
        """Run the canaries of the current generation again. If one fails, go back to the previous; the reason."""
        with self._swapping:
            if self._view is None or self._view.generation is None:
                return None
            try:
                self._view.generation.check_canaries()
            except Exception as error:
                self._trouble = _failure(self._view.generation.name, error)
                if self._previous is not None:
                    self._swap(self._previous, going_back=True)
                    self._previous = None
                return self._trouble
            return None

    def status(self) -> ServingStatus:
        view = self._view
        generation = None if view is None else view.generation
        return ServingStatus(
            generation=None if generation is None else generation.name,
            snapshot_id=None if generation is None else generation.manifest.cut.snapshot_id,
            position=0 if view is None else view.head,
            fresh_documents=0 if view is None else view.count,
            draining=tuple(over.name for over in self._over if not over.closed),
            trouble=self._trouble,
        )

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Answer no more; readers finish."""
        with self._swapping, self._rebinding:
            self._closed = True
            view, self._view = self._view, None
            if view is not None and view.generation is not None:
                view.generation.retire()

    def _swap(self, entry: ArtifactEntry, *, going_back: bool) -> SwapResult:
        begun = time.monotonic()
        old = None if self._view is None else self._view.generation
        if old is not None and old.name == entry.generation:
            return SwapResult(old.name, old.name, 0.0, drained=True)
        if old is not None and not going_back:
            must_not_be_older(old, entry)
        copy = self._copies.fetch(entry)
        crash_point("swap_fetched")
        generation = Generation(copy, self.searchable)
        crash_point("swap_opened")
        try:
            self._rebind(generation)
        except BaseException:
            generation.retire()
            raise
        try:
            generation.check_canaries()
        except BaseException:
            self._rebind(old)
            self._release(generation)
            raise
        self._previous, self._entry = self._entry, entry
        crash_point("swap_rebound")
        drained = self._release(old)
        with self._rebinding:
            # What only the generation before the previous one would need.
            self.fresh.trim(generation.watermark if old is None else min(old.watermark, generation.watermark))
        # It serves, whatever becomes of old copies; the next swap tries again.
        with suppress(FrazilError):
            self._copies.prune([generation.name, *([old.name] if old is not None else [])])
        crash_point("swap_pruned")
        return SwapResult(generation.name, None if old is None else old.name, time.monotonic() - begun, drained)

    def _rebind(self, generation: Generation | None) -> None:
        with self._rebinding:
            self._view = None if generation is None and self.fresh.floor else self.fresh.view(generation)

    def _release(self, generation: Generation | None) -> bool:
        """Let it go; wait for its readers, so that not one of them has to close it."""
        if generation is None:
            return True
        generation.retire()
        self._over = [*(over for over in self._over if not over.closed), generation]
        return generation.drained(self._drain_seconds)


def _failure(generation: str, error: Exception) -> SwapFailure:
    code = error.code if isinstance(error, FrazilError) else "internal"
    reason = error.message if isinstance(error, FrazilError) else str(error)
    return SwapFailure(generation, code, reason, time.time())
