"""Feeding a shelf while the searches that want it leave: it is done once, to its end, by one at a time."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from frazil.errors import Unavailable, VisibilityTimeout
from frazil.gateway.search.fresh_feed import FreshFeed, FreshFeeds
from frazil.serving import SearchSettings
from frazil.serving.search import ServedGenerations
from frazil.serving.sql import QueryPool
from frazil.tables import ResolvedTable


class Reached:
    short_name = "notes"


class Table:
    """Stands for a table that has come so far; what is compared is in `Feeding` below."""

    def reach(self) -> Reached:
        return Reached()

    def cut(self) -> None:
        return None


class NoDocuments:
    searchable = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        yield None


class Feeding(FreshFeed):
    """A feed whose work is a wait."""

    def __init__(self) -> None:
        super().__init__(cast(ServedGenerations, NoDocuments()), cast(QueryPool, None), max_documents=10)
        self.fed = False
        self.began = 0
        self.at_once = 0
        self.most_at_once = 0
        self.fails = 0
        self.may_end = asyncio.Event()

    def is_fed(self, reach: Any, state: Any) -> bool:
        return self.fed

    async def _feed(self, cut: Any, deadline: float) -> Any:
        self.began += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.may_end.wait()
        finally:
            self.at_once -= 1
        if self.fails:
            self.fails -= 1
            raise Unavailable("the model is away", code="model_unavailable")
        self.fed = True
        return Reached()


def reading(feed: FreshFeed, seconds: float = 30.0) -> asyncio.Task[None]:
    async def read() -> None:
        async with feed.read_at(cast(ResolvedTable, Table()), time.monotonic() + seconds):
            pass

    return asyncio.create_task(read())


async def test_a_search_that_leaves_while_it_feeds_feeds_for_the_others() -> None:
    feed = Feeding()
    first, second = reading(feed), reading(feed)
    await asyncio.sleep(0.01)
    first.cancel()
    third = reading(feed)
    await asyncio.sleep(0.01)
    assert first.cancelled() and feed.began == 1
    feed.may_end.set()
    await asyncio.wait_for(asyncio.gather(second, third), 20)
    assert (feed.began, feed.most_at_once) == (1, 1)


async def test_a_failure_is_told_to_whose_it_is_and_the_next_tries_again() -> None:
    feed = Feeding()
    feed.fails = 1
    first, second = reading(feed), reading(feed)
    await asyncio.sleep(0.01)
    feed.may_end.set()
    with pytest.raises(Unavailable, match="the model is away"):
        await first
    await asyncio.wait_for(second, 20)
    assert (feed.began, feed.most_at_once) == (2, 1)


async def test_who_has_no_time_left_is_told_and_the_feed_goes_on() -> None:
    feed = Feeding()
    first, hurried = reading(feed), reading(feed, 0.1)
    with pytest.raises(VisibilityTimeout, match="notes"):
        await asyncio.wait_for(hurried, 20)
    assert not first.done()
    feed.may_end.set()
    await asyncio.wait_for(first, 20)


class NoGenerations:
    """Stands for what is served."""

    searchable = SimpleNamespace(model=None)
    is_closed = False


def test_feeds_go_with_what_they_feed() -> None:
    feeds = FreshFeeds(cast(QueryPool, None), SearchSettings())
    first, second = (cast(ServedGenerations, NoGenerations()) for _ in range(2))
    feed = feeds.of(first, "live")
    assert feeds.of(second, "live") is not feed and feeds.of(first, "live") is feed
    first.is_closed = True  # type: ignore[misc]
    there = weakref.ref(first)
    del first, feed
    third = cast(ServedGenerations, NoGenerations())
    assert feeds.of(third, "live") is feeds.of(third, "live")
    gc.collect()
    assert there() is None
