"""Feeding: before a search is answered, every change up to its cut is among the fresh documents.

Each search brings in what is new since the last one. One at a time does so for a shelf; those that waited find that it
was done for them too, since whoever feeds takes the cut of that very moment. It is done in a task of its own: a search
that is cancelled or out of time meanwhile leaves nothing half done, and no thread that changes documents beside the
next one.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar

from frazil.errors import Unavailable, VisibilityTimeout
from frazil.gateway.search.beside import Beside, Sink, WithAll
from frazil.gateway.search.changes import Changes, Made, Reader, TooMuch
from frazil.gateway.search.cuts import FoundCut, Reach, TableCut
from frazil.gateway.threads import to_the_end
from frazil.serving import SearchSettings
from frazil.serving.search import DocumentChange, Generation, SearchState, ServedGenerations
from frazil.serving.sql import QueryPool

T = TypeVar("T")
Kind = Literal["live", "committed", "words"]
_GENERATIONS = 8


class Feed:
    """The fresh documents of one kind for one serving."""

    def __init__(self, sink: Sink, pool: QueryPool, *, max_documents: int) -> None:
        self._sink = sink
        self._reader = Reader(pool, sink.searchable, max_documents=max_documents)
        self._feeding: asyncio.Task[Reach] | None = None
        self._seen: OrderedDict[str, int | None] = OrderedDict()
        """By generation: the snapshot up to which loads and removals were brought in."""
        self._aside = -1
        """Where the last loads and removals were put."""

    def reading(self) -> AbstractContextManager[SearchState]:
        return self._sink.reading()

    def is_fed(self, reach: Reach, reading: SearchState) -> bool:
        """Whether this state has everything that the table had when it had come so far."""
        if reading.view.head < reach.end:
            return False
        return reach.is_entity or self._seen_by(reading.generation) == reach.table.snapshot_id

    async def bring(self, found: FoundCut, deadline: float) -> Reach:
        """Make it so; returns how far the table had come by then."""
        while (reached := self._fed_to(found)) is None:
            feeding = self._feeding
            is_ours = feeding is None or feeding.done()
            if feeding is None or is_ours:
                feeding = self._feeding = asyncio.create_task(self._bring(found, deadline), name="feed a shelf")
                feeding.add_done_callback(_retrieved)
            # For as long as the caller has: what we feed ourselves obeys the deadline by itself.
            done, _ = await asyncio.wait({feeding}, timeout=None if is_ours else _left(deadline))
            if not done:
                raise VisibilityTimeout(
                    f"the newest documents of {found.reach().short_name!r} were not searchable within the time given",
                    hint="ask again with more time",
                    retry_after_seconds=1.0,
                )
            if is_ours:
                return feeding.result()
        return reached

    async def _bring(self, found: FoundCut, deadline: float) -> Reach:
        try:
            return await self._feed(found.cut, deadline)
        except TooMuch:
            # What only a rollback would need is not worth an error.
            if not await _in_thread(self._sink.forget_older):
                raise
            return await self._feed(found.cut, deadline)

    def _fed_to(self, found: FoundCut) -> Reach | None:
        """How far the table has come, if all of that is here."""
        reached = found.reach()
        with self.reading() as reading:
            return reached if self.is_fed(reached, reading) else None

    async def _feed(self, cut: Callable[[], TableCut], deadline: float) -> TableCut:
        taken = cut()
        aside: Made | None = None
        with self.reading() as reading:
            generation = reading.generation
            _must_be_of(taken, generation)
            if not taken.is_entity:
                at, seen = max(taken.table.watermark, self._aside + 1), self._seen_by(generation)
                aside = await self._reader.loaded(taken, reading, seen, at, seconds=_left(deadline))
                self._aside = self._aside if aside is None else at
        # Once more, for what is in the tail must be read in the moment of its cut.
        events = self._reader.at_hand(cut(), self._sink.head)
        if events is None:
            events = await self._reader.events(cut, self._sink.head, seconds=_left(deadline))
        # A commit of what is here already brings nothing.
        if aside is not None or not events.is_nothing or events.upto > self._sink.head:
            await _in_thread(partial(self._apply, events, aside))
        self._saw(generation, taken.table.snapshot_id)
        return taken

    def _apply(self, events: Changes, aside: Made | None) -> None:
        changes: list[DocumentChange] = [*events.make(), *(aside() if aside is not None else ())]
        self._sink.apply(changes, events.upto)

    def _seen_by(self, generation: Generation | None) -> int | None:
        name = "" if generation is None else generation.name
        if name in self._seen:
            return self._seen[name]
        return None if generation is None else generation.manifest.cut.snapshot_id

    def _saw(self, generation: Generation | None, snapshot_id: int | None) -> None:
        name = "" if generation is None else generation.name
        self._seen[name] = snapshot_id
        self._seen.move_to_end(name)
        while len(self._seen) > _GENERATIONS:
            self._seen.popitem(last=False)


class Feeds:
    """The feeds of all servings of this gateway. One that is replaced goes with its feeds."""

    def __init__(self, pool: QueryPool, settings: SearchSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._feeds: weakref.WeakKeyDictionary[ServedGenerations, dict[Kind, Feed]] = weakref.WeakKeyDictionary()

    def of(self, serving: ServedGenerations, kind: Kind) -> Feed:
        feeds = self._feeds.setdefault(serving, {})
        if kind not in feeds:
            feeds[kind] = Feed(self._sink(serving, kind), self._pool, max_documents=self._settings.fresh_documents)
        return feeds[kind]

    def begin_anew(self, serving: ServedGenerations) -> bool:
        """After a `FreshGap`: read what is kept beside again, from the generation that serves now; if there is any."""
        feeds = self._feeds.get(serving, {})
        beside = [kind for kind in feeds if kind != "live"]
        for kind in beside:
            del feeds[kind]
        return bool(beside)

    def _sink(self, serving: ServedGenerations, kind: Kind) -> Sink:
        if kind == "live":
            return WithAll(serving)
        searchable = serving.searchable if kind == "committed" else replace(serving.searchable, model=None)
        return Beside(
            serving,
            searchable,
            max_documents=self._settings.fresh_documents,
            max_bytes=int(self._settings.fresh_memory),
        )


def _must_be_of(cut: TableCut, generation: Generation | None) -> None:
    """Positions of another stream mean other events."""
    if generation is not None and generation.manifest.cut.stream != cut.table.stream_identity:
        short = cut.short_name
        raise Unavailable(
            f"the artifact of {short!r} was built before its stream was replaced",
            code="artifact_of_other_stream",
            hint=f"build a new one: frazil build {short}",
            retry_after_seconds=10.0,
        )


async def _in_thread(work: Callable[[], T]) -> T:
    """Run in a thread, and until its end: whoever feeds next must find the fresh documents whole."""
    return await to_the_end(asyncio.get_running_loop().run_in_executor(None, work))


def _left(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())


def _retrieved(feeding: asyncio.Task[Reach]) -> None:
    """Those who waited are told of its failure; that nobody waits any longer is none."""
    if not feeding.cancelled():
        feeding.exception()
