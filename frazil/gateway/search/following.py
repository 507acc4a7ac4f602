"""Following what is said of artifacts: every gateway by its own subscription, at its own pace.

A word over the bus only says where to look; the registers are looked at every few seconds besides, so that a lost word
costs those and nothing else. Beside it what is held is said again and again, however long a swap takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from frazil.bus import EventBus
from frazil.errors import DataLoss, FrazilError, NotFound
from frazil.gateway.search.held_shelf import HeldShelf, Moved
from frazil.serving.artifacts import AnnouncementReader, announce
from frazil.storage import Journal

if TYPE_CHECKING:
    from frazil.gateway.search.served import Held, ServedTables
    from frazil.serving.search import SwapFailure

log = logging.getLogger(__name__)
_T = TypeVar("_T")

_TRY_AGAIN_SECONDS = 0.5


@dataclass(frozen=True)
class FollowPace:
    look_seconds: float = 10.0
    """How often all registers are looked at, whatever is said."""
    prove_seconds: float = 300.0
    """How often what serves is asked again what its builder asked."""
    renew_seconds: float = 30.0
    """How often leases are renewed: well within the 120 s that they last."""
    retry_seconds: float = 1.0
    """How often a shelf that failed is given a chance; each waits longer from one to the next."""
    linger_seconds: float = 60.0
    """How long what was replaced stays open for a search that was about to begin on it."""


async def to_its_end(work: Callable[..., _T], *arguments: object) -> _T:
    """Do it in a thread. Who is cancelled meanwhile waits for its end: a thread cannot be called back, and whoever has
    the next turn must be alone.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # nobody will ask for it
        raise cancelled
    return running.result()


class Following:
    def __init__(self, tables: ServedTables, bus: EventBus, journal: Journal, pace: FollowPace) -> None:
        self._tables = tables
        self._bus = bus
        self._journal = journal
        self._pace = pace
        self._tasks: list[asyncio.Task[None]] = []
        self._lingering: list[HeldShelf] = []
        self._listener: AnnouncementReader | None = None
        self._looked_at = 0.0
        self._proved_at = time.monotonic()
        self._complained_of = ""

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

    def linger(self, shelf: HeldShelf) -> None:
        """It serves no more; it is closed when nobody can be searching it."""
        self._lingering.append(shelf)

    async def _follow(self) -> None:
        while True:
            try:
                heard = await self._heard()
                if heard is None or time.monotonic() - self._looked_at >= self._pace.look_seconds:
                    await self._look_at_all(at_once=frozenset(heard or ()))
                else:
                    await self._look_at(heard, at_once=frozenset(heard))
                    await self._look_at(self._troubled(), at_once=frozenset())
                if time.monotonic() - self._proved_at >= self._pace.prove_seconds:
                    await self._prove()
            except asyncio.CancelledError:
                raise
            except FrazilError as error:
                self._complain("cannot look at the artifacts", error)
                await asyncio.sleep(_TRY_AGAIN_SECONDS)
            except Exception:
                # Whatever it is: a gateway that follows no more would serve old artifacts for ever.
                log.exception("following artifacts failed")
                await asyncio.sleep(_TRY_AGAIN_SECONDS)

    async def _heard(self) -> list[str] | None:
        """The shelves that something was said of; None: look at all, as something may have been missed."""
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
            self._complain("cannot hear what is said of artifacts", error)
            self._listener = None
            await asyncio.sleep(min(_TRY_AGAIN_SECONDS, self._pace.look_seconds))
            return []

    def _complain(self, what: str, error: Exception) -> None:
        """Once, until it is over."""
        if self._complained_of != what:
            log.warning("%s: %s", what, error)
        self._complained_of = what

    async def _look_at_all(self, *, at_once: frozenset[str]) -> None:
        names = await self._tables.names()
        await self._look_at(names, at_once=at_once)
        self._looked_at = time.monotonic()
        self._complained_of = ""
        self._tables.all_are_open()

    def _troubled(self) -> list[str]:
        return [held.shelf.name for held in self._tables.held() if held.error is not None]

    async def _look_at(self, names: Iterable[str], *, at_once: frozenset[str]) -> None:
        """One after the other: two artifacts that are opened at once take the memory of both."""
        for name in names:
            before = self._tables.of_shelf(name)
            known = None if before is None else before.shelf.trouble
            try:
                moved = await self._tables.look(name, at_once=name in at_once)
            except FrazilError as error:
                await self._tell_trouble(name, known, error)
                continue
            if moved is not None:
                self._tell_moved(name, moved)

    async def _tell_trouble(self, name: str, known: SwapFailure | None, error: FrazilError) -> None:
        held = self._tables.of_shelf(name)
        trouble = None if held is None else held.shelf.trouble
        if held is None or trouble is None:
            return  # the catalog or the bus is away; their own parts say so
        if known is None or (known.generation, known.code) != (trouble.generation, trouble.code):
            log.warning("an artifact is not served: %s", error, extra={"table": name, "artifact": trouble.generation})
            self._note(
                "artifact_refused", name, generation=trouble.generation, code=trouble.code, reason=trouble.reason
            )
        if held.shelf.is_unsound():
            await self._withdraw(held, trouble)

    async def _prove(self) -> None:
        self._proved_at = time.monotonic()
        for held in self._tables.held():
            async with held.turn:
                trouble = await to_its_end(held.shelf.prove)
            if trouble is not None:
                log.error("a generation fails: %s", trouble.reason, extra={"artifact": trouble.generation})
                await self._withdraw(held, trouble)

    async def _withdraw(self, held: Held, trouble: SwapFailure) -> None:
        """Roll a failed generation back for everybody, and say so."""
        name = held.shelf.name
        try:
            entry = await asyncio.to_thread(held.shelf.withdraw, trouble)
        except FrazilError as error:
            log.warning("cannot roll back: %s", error, extra={"table": name, "artifact": trouble.generation})
            return
        current = entry.generation if entry is not None else None
        self._note(
            "artifact_rolled_back", name, generation=trouble.generation, to=current, code=trouble.code,
            reason=trouble.reason,
        )  # fmt: skip
        with contextlib.suppress(FrazilError):  # the others look by themselves
            await announce(self._bus, name, current or "")
        with contextlib.suppress(FrazilError):
            moved = await self._tables.look(name, at_once=True)
            if moved is not None:
                self._tell_moved(name, moved)

    def _tell_moved(self, name: str, moved: Moved) -> None:
        log.info("serving %s", moved.generation, extra={"table": name, "artifact": moved.generation})
        self._note(
            "artifact_served",
            name,
            generation=moved.generation,
            previous=moved.previous,
            seconds=round(moved.seconds, 3),
            reader=self._tables.reader,
        )

    def _note(self, kind: str, name: str, **words: object) -> None:
        with contextlib.suppress(OSError):
            self._journal.append(kind, table=name.partition("@")[0], shelf=name, **words)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._pace.renew_seconds)
            # Not taken out of the list meanwhile: whoever closes this closes what is in it.
            for shelf in [*(held.shelf for held in self._tables.held()), *self._lingering]:
                try:
                    await asyncio.to_thread(shelf.renew)
                except FrazilError as error:
                    log.warning("cannot say what is served: %s", error, extra={"table": shelf.name})
                except Exception:
                    # Whatever it is: leases that are not renewed let clean-ups take away what is served.
                    log.exception("renewing a lease failed", extra={"table": shelf.name})
            self._lingering = [shelf for shelf in self._lingering if not shelf.is_over]
