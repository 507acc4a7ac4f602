"""Shelf follower: every gateway follows the registers of its shelves, by its own subscription and at its own pace.

An announcement over the bus only says where to look. The registers are looked at every few seconds besides, so that a
lost announcement costs those seconds and nothing else. Leases are renewed in a task of its own, however long a swap
takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.bus import EventBus
from frazil.errors import DataLoss, FrazilError, NotFound
from frazil.gateway.search.shelf_reader import ShelfReader
from frazil.gateway.threads import finish_in_thread
from frazil.serving.artifacts import AnnouncementReader, announce
from frazil.storage import Journal

if TYPE_CHECKING:
    from frazil.gateway.search.shelf_readers import ShelfReaders
    from frazil.serving.search import SwapFailure, SwapResult

log = logging.getLogger(__name__)

_TRY_AGAIN_SECONDS = 0.5


@dataclass(frozen=True)
class FollowPace:
    look_seconds: float = 10.0
    """How often all registers are looked at, whatever is announced."""
    canary_seconds: float = 300.0
    """How often the canaries of what serves are checked again."""
    renew_seconds: float = 30.0
    """How often leases are renewed: well within the 120 s that they last."""
    retry_seconds: float = 1.0
    """How often a shelf that failed is given a chance; each waits longer from one to the next."""
    linger_seconds: float = 60.0
    """How long what was replaced stays open for a search that was about to begin on it."""


class ShelfFollower:
    def __init__(self, readers: ShelfReaders, bus: EventBus, journal: Journal, pace: FollowPace) -> None:
        self._readers = readers
        self._bus = bus
        self._journal = journal
        self._pace = pace
        self._tasks: list[asyncio.Task[None]] = []
        self._lingering: list[ShelfReader] = []
        self._listener: AnnouncementReader | None = None
        self._looked_at = 0.0
        self._checked_at = time.monotonic()
        self._warned_of = ""

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._follow(), name="follow artifacts"),
            asyncio.create_task(self._renew(), name="renew leases"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for shelf in self._lingering:
            with contextlib.suppress(FrazilError):
                await asyncio.to_thread(shelf.close)

    def close_later(self, shelf: ShelfReader) -> None:
        """It serves no more; it is closed when nobody can be searching it."""
        self._lingering.append(shelf)

    async def _follow(self) -> None:
        while True:
            try:
                announced = await self._announced()
                if announced is None or time.monotonic() - self._looked_at >= self._pace.look_seconds:
                    await self._look_at_all(at_once=frozenset(announced or ()))
                else:
                    await self._look_at(announced, at_once=frozenset(announced))
                    await self._look_at(self._troubled(), at_once=frozenset())
                if time.monotonic() - self._checked_at >= self._pace.canary_seconds:
                    await self._check_canaries()
            except asyncio.CancelledError:
                raise
            except FrazilError as error:
                self._warn_once("artifact registers unreadable", error)
                await asyncio.sleep(_TRY_AGAIN_SECONDS)
            except Exception:
                # Whatever it is: a gateway that follows no more would serve old artifacts for ever.
                log.exception("artifact following failed")
                await asyncio.sleep(_TRY_AGAIN_SECONDS)

    async def _announced(self) -> list[str] | None:
        """The shelves that were announced; None: look at all, as an announcement may have been missed."""
        try:
            if self._listener is None:
                self._listener = await AnnouncementReader.open(self._bus)
                return None
            waited = time.monotonic() - self._looked_at
            patience = min(self._pace.retry_seconds, self._pace.look_seconds - waited)
            return list(await self._listener.next(timeout_seconds=max(0.0, patience)))
        except (DataLoss, NotFound):
            self._listener = None
            return None
        except Exception as error:  # whatever a bus raises, the registers are still looked at
            self._warn_once("artifact announcements unreadable", error)
            self._listener = None
            await asyncio.sleep(min(_TRY_AGAIN_SECONDS, self._pace.look_seconds))
            return []

    def _warn_once(self, what: str, error: Exception) -> None:
        """Once, until it is over."""
        if self._warned_of != what:
            log.warning("%s: %s", what, error)
        self._warned_of = what

    async def _look_at_all(self, *, at_once: frozenset[str]) -> None:
        names = await self._readers.names()
        await self._look_at(names, at_once=at_once)
        self._looked_at = time.monotonic()
        self._warned_of = ""
        self._readers.all_are_open()

    def _troubled(self) -> list[str]:
        return [reader.name for reader in self._readers.readers() if reader.error is not None]

    async def _look_at(self, names: Iterable[str], *, at_once: frozenset[str]) -> None:
        """One after the other: two artifacts that are opened at once take the memory of both."""
        for name in names:
            before = self._readers.of_shelf(name)
            known = None if before is None else before.trouble
            try:
                swapped = await self._readers.look(name, at_once=name in at_once)
            except FrazilError as error:
                await self._report_trouble(name, known, error)
                continue
            if swapped is not None:
                self._report_swap(name, swapped)

    async def _report_trouble(self, name: str, known: SwapFailure | None, error: FrazilError) -> None:
        reader = self._readers.of_shelf(name)
        trouble = None if reader is None else reader.trouble
        if reader is None or trouble is None:
            return  # the catalog or the bus is away; their own parts say so
        if known is None or (known.generation, known.code) != (trouble.generation, trouble.code):
            log.warning("artifact refused: %s", error, extra={"table": name, "artifact": trouble.generation})
            self._note(
                "artifact_refused", name, generation=trouble.generation, code=trouble.code, reason=trouble.reason
            )
        if reader.is_unsound():
            await self._withdraw(reader, trouble)

    async def _check_canaries(self) -> None:
        self._checked_at = time.monotonic()
        for reader in self._readers.readers():
            async with reader.turn:
                trouble = await finish_in_thread(reader.check_canaries)
            if trouble is not None:
                log.error("generation failed: %s", trouble.reason, extra={"artifact": trouble.generation})
                await self._withdraw(reader, trouble)

    async def _withdraw(self, reader: ShelfReader, trouble: SwapFailure) -> None:
        """Roll a failed generation back for everybody, and announce it."""
        name = reader.name
        try:
            entry = await asyncio.to_thread(reader.withdraw, trouble)
        except FrazilError as error:
            log.warning("artifact rollback failed: %s", error, extra={"table": name, "artifact": trouble.generation})
            return
        current = entry.generation if entry is not None else None
        self._note(
            "artifact_rolled_back", name, generation=trouble.generation, to=current, code=trouble.code,
            reason=trouble.reason,
        )  # fmt: skip
        with contextlib.suppress(FrazilError):  # the others look by themselves
            await announce(self._bus, name, current or "")
        with contextlib.suppress(FrazilError):
            swapped = await self._readers.look(name, at_once=True)
            if swapped is not None:
                self._report_swap(name, swapped)

    def _report_swap(self, name: str, swapped: SwapResult) -> None:
        log.info("artifact served: %s", swapped.generation, extra={"table": name, "artifact": swapped.generation})
        self._note(
            "artifact_served",
            name,
            generation=swapped.generation,
            previous=swapped.previous,
            seconds=round(swapped.seconds, 3),
            reader=self._readers.reader,
        )

    def _note(self, kind: str, name: str, **fields: object) -> None:
        with contextlib.suppress(OSError):
            self._journal.append(kind, table=name.partition("@")[0], shelf=name, **fields)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._pace.renew_seconds)
            # Not taken out of the list meanwhile: whoever closes this closes what is in it.
            for shelf in [*self._readers.readers(), *self._lingering]:
                try:
                    await asyncio.to_thread(shelf.renew)
                except FrazilError as error:
                    log.warning("lease renewal failed: %s", error, extra={"table": shelf.name})
                except Exception:
                    # Whatever it is: leases that are not renewed let clean-ups take away what is served.
                    log.exception("lease renewal failed", extra={"table": shelf.name})
            self._lingering = [shelf for shelf in self._lingering if not shelf.is_over]
