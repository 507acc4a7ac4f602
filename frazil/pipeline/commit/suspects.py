"""Suspects: tables whose stage was under way when the engine was lost. They are held back, so that others go on.

A suspect stages alone, beside no other table, in batches that halve with each loss and double with each commit. What
was lost is written down before the process ends; the next one begins with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from frazil.crash import crash_point
from frazil.pipeline.commit.row_errors import RowsRefused
from frazil.storage import sync_files

log = logging.getLogger(__name__)
ENGINE_LOST = "engine_lost"
LOSSES_OF_ONE_ROW = 2
"""A single event is given up when the engine was lost so often while nothing but this event was being staged."""
_SPANS_KEPT = 64


@dataclass(frozen=True)
class Span:
    """The positions of the first and the last row of a stage."""

    first: int
    last: int

    @classmethod
    def of(cls, rows: pa.Table) -> Span:
        if rows.num_rows == 0:
            return cls(-1, -1)
        return cls(pc.min(rows["_seq"]).as_py(), pc.max(rows["_seq"]).as_py())

    def contains(self, other: Span) -> bool:
        return self.first <= other.first and other.last <= self.last


@dataclass(frozen=True)
class Suspect:
    """A table that is held back."""

    code: str
    """Why: `engine_lost`, or `stage_failed` where a batch is too large to be staged as one."""
    messages: int
    """A batch takes at most so many messages."""
    until: int
    """The table is let go when it has committed so many at once, or has nothing more to commit."""
    losses: int = 0
    spans: Mapping[str, int] = field(default_factory=dict)
    """How often the engine was lost while these rows were staged alone; `first-last`."""

    def losses_in(self, span: Span, dead: Iterable[int]) -> int:
        """How often it was lost with rows inside of the span, those left out that a dead letter explains."""
        explained = set(dead)
        total = 0
        for text, times in self.spans.items():
            first, _, last = text.partition("-")
            lost = Span(int(first), int(last))
            if span.contains(lost) and not any(lost.first <= at <= lost.last for at in explained):
                total += times
        return total

    def body(self) -> dict[str, Any]:
        """The field `held_back` of the table in the status file."""
        return {"code": self.code, "messages": self.messages, "losses": self.losses}

    def reason(self, name: str) -> str:
        why = "the engine was lost while it was staged" if self.losses else "a batch was too large to be staged"
        return f"{name} is held back: {why}"


@dataclass(frozen=True)
class _Flight:
    span: Span
    messages: int
    is_alone: bool
    began: float = field(default_factory=time.monotonic)


class Suspects:
    """Which tables are held back, and which stages are under way. Used on one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables = _read(path)
        self._flights: dict[str, _Flight] = {}
        self._changed = asyncio.Event()
        self._shared = 0
        self._is_taken = False
        self._waiting = 0

    def of(self, table: str) -> Suspect | None:
        return self._tables.get(table)

    def all(self) -> Mapping[str, Suspect]:
        return dict(self._tables)

    @asynccontextmanager
    async def stage(self, table: str, rows: pa.Table, messages: int) -> AsyncIterator[None]:
        """The time of one stage. That of a suspect begins when no other is under way, and none begins beside it.

        After an error the stage counts as under way until `ended`: whether the engine is lost is not known yet.
        """
        is_alone = table in self._tables
        async with self._place(is_alone=is_alone):
            self._flights[table] = _Flight(Span.of(rows), messages, is_alone)
            try:
                yield
            except Exception:
                raise
            except BaseException:
                self.ended(table)
                raise
            self.ended(table)

    @contextmanager
    def fold(self, entity: str) -> Iterator[None]:
        """The time of one fold. It takes minutes at times, so that nobody waits for its end."""
        name = fold_of(entity)
        self._flights[name] = _Flight(Span(-1, -1), 1, is_alone=False)
        yield
        self.ended(name)
        self.committed(name, 1)

    def ended(self, table: str) -> None:
        """No stage of this table is under way."""
        self._flights.pop(table, None)

    def longest(self) -> tuple[str, float] | None:
        """Whose stage has been under way for longest, and for how many seconds."""
        if not self._flights:
            return None
        name, flight = min(self._flights.items(), key=lambda item: item[1].began)
        return name, time.monotonic() - flight.began

    def lost(self) -> list[str]:
        """Write down that the engine is gone, and whose stage was under way; their names.

        One that staged alone explains it; then nobody else is held back.
        """
        alone = {name: flight for name, flight in self._flights.items() if flight.is_alone}
        for name, flight in (alone or self._flights).items():
            self._tables[name] = _blamed(self._tables.get(name), flight)
        blamed = sorted(alone or self._flights)
        self._flights.clear()
        if blamed:
            self._write()
        return blamed

    def too_large(self, table: str, messages: int) -> None:
        """A batch of so many messages cannot be staged, while its halves can."""
        known = self._tables.get(table) or Suspect("stage_failed", messages, messages)
        self._tables[table] = replace(known, messages=max(1, messages // 2))
        self._write()

    def committed(self, table: str, messages: int) -> bool:
        """A batch of so many messages was committed, 0 where nothing waits; whether the table is let go by it."""
        known = self._tables.get(table)
        if known is None:
            return False
        if messages < known.messages or messages >= known.until:
            del self._tables[table]
            self._write()
            return True
        self._tables[table] = replace(known, messages=known.messages * 2)
        self._write()
        return False

    def keep_only(self, tables: Iterable[str]) -> None:
        """Forget what is held back of tables that are gone."""
        there = {name for table in tables for name in (table, fold_of(table))}
        if gone := self._tables.keys() - there:
            for name in gone:
                del self._tables[name]
            self._write()

    @asynccontextmanager
    async def _place(self, *, is_alone: bool) -> AsyncIterator[None]:
        await self._enter(is_alone=is_alone)
        try:
            yield
        finally:
            self._leave(is_alone=is_alone)

    async def _enter(self, *, is_alone: bool) -> None:
        if not is_alone:
            # One that waits to be alone comes first, or the others would keep it waiting for ever.
            await self._until(lambda: not self._is_taken and not self._waiting)
            self._shared += 1
            return
        self._waiting += 1
        try:
            await self._until(lambda: not self._is_taken and not self._shared)
            self._is_taken = True
        finally:
            self._waiting -= 1
            self._wake_waiters()

    async def _until(self, is_free: Callable[[], bool]) -> None:
        while not is_free():
            await self._changed.wait()

    def _leave(self, *, is_alone: bool) -> None:
        if is_alone:
            self._is_taken = False
        else:
            self._shared -= 1
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _write(self) -> None:
        body = {name: msgspec.to_builtins(suspect) for name, suspect in self._tables.items()}
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(body))
            sync_files([str(temporary)])
            crash_point("before_suspects_replace")
            temporary.replace(self._path)
        except OSError as error:  # a full disk costs the next process what this one knew, and no event
            log.warning("write of held-back tables failed: %s", error)


def fold_of(entity: str) -> str:
    """The name under which the fold of an entity is held back."""
    return f"the fold of {entity}"


def _blamed(known: Suspect | None, flight: _Flight) -> Suspect:
    suspect = known or Suspect(ENGINE_LOST, flight.messages, flight.messages)
    spans = dict(suspect.spans)
    if flight.is_alone and flight.span.first >= 0:
        text = f"{flight.span.first}-{flight.span.last}"
        spans[text] = spans.pop(text, 0) + 1
    newest = dict(list(spans.items())[-_SPANS_KEPT:])
    return replace(
        suspect, code=ENGINE_LOST, messages=max(1, flight.messages // 2), losses=suspect.losses + 1, spans=newest
    )


def _read(path: Path) -> dict[str, Suspect]:
    """What an earlier process wrote down; nothing where it is not there or cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Suspect])
    except (OSError, msgspec.DecodeError):
        return {}


def lost_with(suspect: Suspect | None, rows: pa.Table, dead: Iterable[int]) -> RowsRefused | None:
    """The error if these rows may not be staged together, because the engine was lost with some of them."""
    if suspect is None or rows.num_rows == 0:
        return None
    losses = suspect.losses_in(Span.of(rows), dead)
    if losses < (LOSSES_OF_ONE_ROW if rows.num_rows == 1 else 1):
        return None
    return RowsRefused(
        f"the engine was lost {losses} times while this was staged alone, out of memory as a rule",
        code=ENGINE_LOST,
        hint="give the driver more memory (pipeline.driver_memory), then resend it",
    )
