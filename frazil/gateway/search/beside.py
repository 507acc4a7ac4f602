"""Where fresh documents are put: with those that every search sees, or beside them for the few that ask differently.

Beside them are kept what is committed, for searches that want nothing else, and words alone, for searches by words
while the model does not answer. Both are made when they are first asked for, and begin at the generation that serves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from frazil.serving.search import (
    DocumentChange,
    FreshDocuments,
    FreshFull,
    FreshView,
    Generation,
    Searchable,
    SearchState,
    ServedGenerations,
)


class Sink(Protocol):
    @property
    def searchable(self) -> Searchable: ...

    @property
    def head(self) -> int:
        """Changes are wanted from here on."""

    def apply(self, changes: Iterable[DocumentChange], upto: int) -> None:
        """Take all changes below this position that were not told yet. It blocks: a model may be asked."""

    def forget_older(self) -> bool:
        """Want less: from the current generation on. False if that is no less."""

    def reading(self) -> AbstractContextManager[SearchState]: ...


class WithAll:
    """The documents of the serving itself."""

    def __init__(self, serving: ServedGenerations) -> None:
        self._serving = serving

    @property
    def searchable(self) -> Searchable:
        return self._serving.searchable

    @property
    def head(self) -> int:
        return self._serving.fresh.head

    def apply(self, changes: Iterable[DocumentChange], upto: int) -> None:
        self._serving.apply(changes, upto)

    def forget_older(self) -> bool:
        before = self.head
        self._serving.forget_older()
        return self.head > before

    def reading(self) -> AbstractContextManager[SearchState]:
        return self._serving.reading()


class Beside:
    """Documents of its own beside the generation that serves."""

    def __init__(
        self, serving: ServedGenerations, searchable: Searchable, *, max_documents: int, max_bytes: int
    ) -> None:
        self.searchable = searchable
        self._serving = serving
        with serving.reading() as reading:
            self._fresh = FreshDocuments(
                searchable, floor=_watermark(reading.generation), max_documents=max_documents, max_bytes=max_bytes
            )
        self._view: FreshView | None = None
        self._changing = threading.Lock()

    @property
    def head(self) -> int:
        return self._fresh.head

    def apply(self, changes: Iterable[DocumentChange], upto: int) -> None:
        prepared = self._fresh.prepare(changes)
        with self._serving.reading() as reading, self._changing:
            try:
                self._fresh.apply(prepared, upto)
            except FreshFull:
                self._fresh.trim(_watermark(reading.generation))
                self._fresh.apply(prepared, upto)
            self._view = None

    def forget_older(self) -> bool:
        with self._serving.reading() as reading, self._changing:
            before = self._fresh.head
            self._fresh.trim(_watermark(reading.generation))
            self._view = None
            return self._fresh.head > before

    @contextmanager
    def reading(self) -> Iterator[SearchState]:
        """Raises `FreshGap` once an older generation serves than the one this began with."""
        with self._serving.reading() as reading:
            yield SearchState(self.searchable, self._beside(reading.generation))

    def _beside(self, generation: Generation | None) -> FreshView:
        with self._changing:
            if self._view is None or self._view.generation is not generation:
                self._view = self._fresh.view(generation)
            return self._view


def _watermark(generation: Generation | None) -> int:
    return 0 if generation is None else generation.watermark
