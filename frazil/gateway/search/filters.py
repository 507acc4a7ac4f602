"""Filters: the documents that the conditions of a search and the grant of its caller let through.

A generation never changes, so what was found out about it is kept, a bit for each row; the fresh documents are few, and
are asked about for each of their states.
"""

from __future__ import annotations

import asyncio
import re
import weakref
from collections import OrderedDict
from typing import Any

from frazil.serving import Bitmap
from frazil.serving.artifacts.parts import DUCKDB
from frazil.serving.search import Allowed, FreshView, SearchState
from frazil.serving.sql import QueryPool
from frazil.serving.sql.worker import RowSelection

_MOST_BYTES = 64 << 20
_MOST_OF_A_VIEW = 256
# The texts of the conditions, at most some thousand characters each, and the entry itself.
_OVERHEAD = 1 << 12
# Each has another answer the next time. A word too many here only costs the worker's work.
_VOLATILE = re.compile(r"random|now|today|tomorrow|yesterday|current|local|age|uuid|timestamp\s*\(", re.IGNORECASE)


class Filters:
    def __init__(self, pool: QueryPool) -> None:
        self._pool = pool
        self._known: OrderedDict[tuple[Any, ...], Bitmap] = OrderedDict()
        self._bytes = 0
        self._fresh: weakref.WeakKeyDictionary[FreshView, dict[tuple[Any, ...], Bitmap]] = weakref.WeakKeyDictionary()

    async def allowed(
        self, state: SearchState, selection: RowSelection, *, owner: str, seconds: float
    ) -> Allowed | None:
        """The documents of this state that the selection chooses; None: all of them.

        Raises `InvalidInput` if a condition is none, also where there is nothing to choose from.
        """
        if selection.where is None and not selection.conditions:
            return None
        rows = await self._of_generation(state, selection, owner, seconds)
        if rows is None or state.view.count:
            return Allowed(rows, await self._of_fresh(state.view, selection, owner, seconds))
        return Allowed(rows)

    async def _of_generation(
        self, state: SearchState, selection: RowSelection, owner: str, seconds: float
    ) -> Bitmap | None:
        generation = state.generation
        if generation is None:
            return None
        key = (generation.name, *selection.key)
        if (known := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return known
        file = generation.contents.folder / DUCKDB
        found = await self._pool.select(selection, file, generation.rows, owner=owner, timeout_seconds=seconds)
        if _is_lasting(selection):
            self._keep(key, found)
        return found

    async def _of_fresh(self, view: FreshView, selection: RowSelection, owner: str, seconds: float) -> Bitmap:
        known = self._fresh.setdefault(view, {})
        if (found := known.get(selection.key)) is not None:
            return found
        rows = await asyncio.to_thread(lambda: view.rows)
        found = await self._pool.select(selection, rows, view.count, owner=owner, timeout_seconds=seconds)
        if _is_lasting(selection) and len(known) < _MOST_OF_A_VIEW:
            known[selection.key] = found
        return found

    def _keep(self, key: tuple[Any, ...], found: Bitmap) -> None:
        """The least used are forgotten when there are too many."""
        if key not in self._known:
            self._bytes += len(found.packed) + _OVERHEAD
        self._known[key] = found
        while self._bytes > _MOST_BYTES:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= len(oldest.packed) + _OVERHEAD


def _is_lasting(selection: RowSelection) -> bool:
    return not any(_VOLATILE.search(text) for text in (*selection.conditions, selection.where or ""))
