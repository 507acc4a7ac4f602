"""Fresh feed: before a search is answered, every change up to its cut is among the fresh documents.

Each search brings in what is new since the last one. One at a time does so for a shelf; those that waited find that it
was done for them too, since whoever feeds takes the cut of that very moment. It is done in a task of its own: a search
that is cancelled or out of time meanwhile leaves nothing half done, and no thread that changes documents beside the
next one.

There are three kinds of feeds. `live` brings documents to those that every search sees. `committed` has documents of
its own, for searches that want nothing else, and so has `words`, which needs no model, for searches by words while the
model does not answer. Both are made when they are first asked for, and begin at the generation that serves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

from frazil.errors import Unavailable, VisibilityTimeout
from frazil.gateway.search.changed_documents import ChangedDocuments, Changes, MakeChanges, TooManyChanges
from frazil.gateway.threads import finish_in_thread
from frazil.serving import SearchSettings
from frazil.serving.search import (
    DocumentChange,
    FreshDocuments,
    FreshFull,
    FreshGap,
    FreshView,
    Generation,
    Searchable,
    SearchState,
    ServedGenerations,
)
from frazil.serving.sql import FilesUnreadable, QueryPool, QueryTimeout
from frazil.tables import CutMoved, Reach, ResolvedTable, TableCut

Kind = Literal["live", "committed", "words"]
_GENERATIONS = 8


class SeparateDocuments:
    """Fresh documents apart from those that every search sees, read with the generation that serves."""

    def __init__(self, serving: ServedGenerations, searchable: Searchable, settings: SearchSettings) -> None:
        self.searchable = searchable
        self._serving = serving
        with serving.reading() as state:
            self.fresh = FreshDocuments(
                searchable,
                floor=_watermark(state.generation),
                max_documents=settings.fresh_documents,
                max_bytes=int(settings.fresh_memory),
            )
        self._view: FreshView | None = None
        self._changing = threading.Lock()

    def apply(self, changes: Iterable[DocumentChange], upto: int) -> None:
        """Take all changes below this position that were not applied yet. It blocks: a model may be asked."""
        prepared = self.fresh.prepare(changes)
        with self._serving.reading() as state, self._changing:
            try:
                self.fresh.apply(prepared, upto)
            except FreshFull:
                self.fresh.trim(_watermark(state.generation))
                self.fresh.apply(prepared, upto)
            self._view = None

    def forget_older(self) -> None:
        """Keep only what the current generation needs."""
        with self._serving.reading() as state, self._changing:
            self.fresh.trim(_watermark(state.generation))
            self._view = None

    @contextmanager
    def reading(self) -> Iterator[SearchState]:
        """Raises `FreshGap` once an older generation serves than the one this began with."""
        with self._serving.reading() as state:
            yield SearchState(self.searchable, self._view_of(state.generation))

    def _view_of(self, generation: Generation | None) -> FreshView:
        with self._changing:
            if self._view is None or self._view.generation is not generation:
                self._view = self.fresh.view(generation)
            return self._view


class FreshFeed:
    """The fresh documents of one kind beside the generations of one shelf."""

    def __init__(
        self,
        documents: ServedGenerations | SeparateDocuments,
        pool: QueryPool,
        *,
        max_documents: int,
        words: Callable[[], FreshFeed] | None = None,
    ) -> None:
        """`words` is the feed that needs no model."""
        self._documents = documents
        self._words = words
        self._changed = ChangedDocuments(pool, documents.searchable, max_documents=max_documents)
        self._feeding: asyncio.Task[Reach] | None = None
        self._seen: OrderedDict[str, int | None] = OrderedDict()
        """By generation: the snapshot up to which loads and removals were brought in."""
        self._loaded_at = -1
        """The position where the last loads and removals were put."""

    @asynccontextmanager
    async def read_at(
        self, table: ResolvedTable, deadline: float, *, by_words: bool = False
    ) -> AsyncIterator[SearchState]:
        """A state with everything that the table has now; it stays whole until the reader leaves.

        For a search `by_words` it may be one without vectors, while the model does not answer.
        """
        feed, reached, fed = self, table.reach(), False
        while True:
            with feed._documents.reading() as state:
                if feed.is_fed(reached, state):
                    yield state
                    return
            if fed:  # another generation took the place of the one that was fed
                raise CutMoved.of(reached.short_name)
            try:
                reached, fed = await feed._fed(table, deadline)
            except Unavailable as error:
                if not by_words or feed._words is None or _is_ours(error):
                    raise
                feed, reached = feed._words(), table.reach()

    def is_fed(self, reach: Reach, state: SearchState) -> bool:
        """Whether this state has everything that the table had when it had come so far."""
        if state.view.head < reach.end:
            return False
        return reach.is_entity or self._seen_by(state.generation) == reach.table.snapshot_id

    async def _fed(self, table: ResolvedTable, deadline: float) -> tuple[Reach, bool]:
        """Bring in what is new, or wait for the one who does; how far the table had come, and whether that is fed."""
        feeding = self._feeding
        if feeding is None or feeding.done():
            feeding = self._feeding = asyncio.create_task(self._bring(table, deadline), name="feed a shelf")
            feeding.add_done_callback(_retrieve_failure)
            # It obeys the deadline by itself. Waiting does not cancel it: it feeds for others too.
            await asyncio.wait({feeding})
            return feeding.result(), True
        done, _ = await asyncio.wait({feeding}, timeout=_left(deadline))
        reached = table.reach()
        if not done:
            raise VisibilityTimeout(
                f"the newest documents of {reached.short_name!r} were not searchable within the time given",
                hint="try again with more time",
                retry_after_seconds=1.0,
            )
        return reached, False

    async def _bring(self, table: ResolvedTable, deadline: float) -> Reach:
        try:
            return await self._feed(table.cut, deadline)
        except TooManyChanges:
            # What only a rollback would need is not worth an error.
            before = self._documents.fresh.head
            await finish_in_thread(self._documents.forget_older)
            if self._documents.fresh.head == before:
                raise
            return await self._feed(table.cut, deadline)

    async def _feed(self, cut: Callable[[], TableCut], deadline: float) -> Reach:
        taken = cut()
        loaded: MakeChanges | None = None
        with self._documents.reading() as state:
            generation = state.generation
            _must_be_of(taken, generation)
            if not taken.is_entity:
                at, seen = max(taken.fed.watermark, self._loaded_at + 1), self._seen_by(generation)
                loaded = await self._changed.loaded(taken, state, seen, at, seconds=_left(deadline))
                self._loaded_at = self._loaded_at if loaded is None else at
        # Once more, for what is in the tail must be read in the moment of its cut.
        events = self._changed.at_hand(cut(), self._documents.fresh.head)
        if events is None:
            events = await self._changed.events(cut, self._documents.fresh.head, seconds=_left(deadline))
        # A commit of what is here already brings nothing.
        if loaded is not None or not events.is_nothing or events.upto > self._documents.fresh.head:
            await finish_in_thread(self._apply, events, loaded)
        self._saw(generation, taken.fed.snapshot_id)
        return taken.reach

    def _apply(self, events: Changes, loaded: MakeChanges | None) -> None:
        changes: list[DocumentChange] = [*events.make(), *(loaded() if loaded is not None else ())]
        self._documents.apply(changes, events.upto)

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


class FreshFeeds:
    """The feeds of all shelves of this gateway, until what they feed is closed."""

    def __init__(self, pool: QueryPool, settings: SearchSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._feeds: dict[ServedGenerations, dict[Kind, FreshFeed]] = {}

    def of(self, serving: ServedGenerations, kind: Kind) -> FreshFeed:
        if serving not in self._feeds:
            # What was replaced is closed a minute later; its feeds, and the documents that they hold, go with it.
            self._feeds = {known: feeds for known, feeds in self._feeds.items() if not known.is_closed}
            self._feeds[serving] = {}
        feeds = self._feeds[serving]
        if kind not in feeds:
            feeds[kind] = self._new(serving, kind)
        return feeds[kind]

    def begin_anew(self, serving: ServedGenerations) -> bool:
        """After a `FreshGap`: read what is kept apart again, from the generation that serves now; if there is any."""
        feeds = self._feeds.get(serving, {})
        apart = [kind for kind in feeds if kind != "live"]
        for kind in apart:
            del feeds[kind]
        return bool(apart)

    def _new(self, serving: ServedGenerations, kind: Kind) -> FreshFeed:
        documents: ServedGenerations | SeparateDocuments = serving
        if kind != "live":
            searchable = serving.searchable if kind == "committed" else replace(serving.searchable, model=None)
            documents = SeparateDocuments(serving, searchable, self._settings)
        has_words = kind == "live" and serving.searchable.model is not None
        return FreshFeed(
            documents,
            self._pool,
            max_documents=self._settings.fresh_documents,
            words=partial(self.of, serving, "words") if has_words else None,
        )


def _watermark(generation: Generation | None) -> int:
    return 0 if generation is None else generation.watermark


def _must_be_of(cut: TableCut, generation: Generation | None) -> None:
    """Positions of another stream mean other events."""
    if generation is not None and generation.manifest.cut.stream != cut.fed.stream_identity:
        short = cut.reach.short_name
        raise Unavailable(
            f"the artifact of {short!r} was built before its stream was replaced",
            code="artifact_of_other_stream",
            hint=f"build a new one: frazil build {short}",
            retry_after_seconds=10.0,
        )


def _is_ours(error: Unavailable) -> bool:
    """Whether something else than the model failed: then words would fail too."""
    return isinstance(error, FreshFull | FreshGap | FilesUnreadable | CutMoved | QueryTimeout) or error.code in (
        "busy",
        "no_generation",
        "visibility_timeout",
        "artifact_of_other_stream",
    )


def _left(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())


def _retrieve_failure(feeding: asyncio.Task[Reach]) -> None:
    """Those who waited raise its failure; that nobody waits any longer is none."""
    if not feeding.cancelled():
        feeding.exception()
