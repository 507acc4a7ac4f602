"""Fold scheduler: each entity by itself, when enough has gathered above its base or has waited long enough."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from frazil.errors import FrazilError, NotFound
from frazil.events.declaration import history_of
from frazil.lake.catalog import Entity
from frazil.pipeline.commit.suspects import Suspects, fold_of
from frazil.pipeline.entities.fold_committer import FoldDone
from frazil.pipeline.periodic import run_every

log = logging.getLogger(__name__)
_T = TypeVar("_T")
_LOOK_SECONDS = 1.0
_TIDY_EVERY_FOLDS = 10
_NOTED_EVERY_FAILURES = 60
_HELD_SECONDS = 30.0
_LONGEST_HELD_SECONDS = 3600.0


class FoldWorker(Protocol):
    """Blocking calls, made from one thread at a time."""

    def load(self) -> Entity: ...
    def fold(self) -> FoldDone | None: ...
    def tidy(self, *, keep_snapshots: int) -> int: ...


@dataclass(frozen=True)
class FoldLimits:
    """When a fold is due."""

    max_rows: int = 50_000
    max_age_seconds: float = 60.0


@dataclass
class _Watched:
    folder: FoldWorker
    seen: tuple[str, str] | None = None
    """The metadata of the two tables when they were last looked at."""
    waiting_since: float | None = None
    folds: int = 0
    failures: int = 0


class FoldScheduler:
    """Folds beside the commits, one entity at a time. A live answer needs no fold: it only takes longer without."""

    def __init__(
        self,
        *,
        make_folder: Callable[[str], FoldWorker],
        limits: FoldLimits,
        snapshot_budget: int,
        note: Callable[..., None],
        locations: Callable[[], dict[str, str]],
        suspects: Suspects,
    ) -> None:
        self._make_folder = make_folder
        self._limits = limits
        self._snapshot_budget = snapshot_budget
        self._note = note
        self._locations = locations
        self._suspects = suspects
        self._started_at = time.monotonic()
        self._watched: dict[str, _Watched] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fold")

    async def run(self, is_stopping: Callable[[], bool]) -> None:
        """Fold until cancelled. A fold under way when the pipeline stops is left: its stage is nobody's."""
        try:
            await run_every(_LOOK_SECONDS, partial(self._turn, is_stopping), name="fold scheduler")
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, is_stopping: Callable[[], bool]) -> None:
        if is_stopping():
            return
        locations = await self._blocking(self._locations)
        pairs = {name: (locations[name], locations[history_of(name)]) for name in entities_of(locations)}
        self._watched = {name: watched for name, watched in self._watched.items() if name in pairs}
        for name, seen in pairs.items():
            if is_stopping():
                return
            watched = self._watched.get(name) or _Watched(self._make_folder(name))
            self._watched[name] = watched
            try:
                await self._look_after(name, watched, seen)
                watched.failures = 0
            except NotFound:
                self._suspects.ended(fold_of(name))  # dropped meanwhile, or by halves
            except FrazilError as error:
                self._suspects.ended(fold_of(name))
                self._failed(name, watched, error)
            except Exception as error:  # of one entity, which must not keep the others from their turn
                log.exception("fold failed", extra={"table": name})
                self._failed(name, watched, FrazilError(f"{type(error).__name__}: {str(error)[:300]}"))

    async def _look_after(self, name: str, watched: _Watched, seen: tuple[str, str]) -> None:
        if seen == watched.seen and watched.waiting_since is None:
            return
        unfolded = (await self._blocking(watched.folder.load)).unfolded_rows
        watched.seen = seen
        if not unfolded:
            watched.waiting_since = None
            return
        since = watched.waiting_since = watched.waiting_since or time.monotonic()
        if unfolded < self._limits.max_rows and time.monotonic() - since < self._limits.max_age_seconds:
            return
        if self._is_held_back(name):
            return
        with self._suspects.fold(name):
            done = await self._blocking(watched.folder.fold)
        watched.waiting_since = None
        watched.seen = None  # there may be more
        if done is not None:
            self._note("fold", table=name, **_entry(done))
            watched.folds += 1
            if watched.folds % _TIDY_EVERY_FOLDS == 0:
                await self._blocking(lambda: watched.folder.tidy(keep_snapshots=self._snapshot_budget))

    def _is_held_back(self, name: str) -> bool:
        """A fold during which the engine was lost waits, longer each time. Answers are complete without it: they
        join what is not folded."""
        suspect = self._suspects.of(fold_of(name))
        if suspect is None:
            return False
        pause = min(_HELD_SECONDS * 2.0**suspect.losses, _LONGEST_HELD_SECONDS)
        return time.monotonic() - self._started_at < pause

    def _failed(self, name: str, watched: _Watched, error: FrazilError) -> None:
        if watched.failures % _NOTED_EVERY_FAILURES == 0:
            log.warning("fold failed: %s", error, extra={"table": name})
            self._note("fold_failed", table=name, **error.body()["error"])
        watched.failures += 1

    async def _blocking(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def entities_of(names: dict[str, str]) -> list[str]:
    """The tables whose history is there too: no other table may have such a name."""
    return sorted(name for name in names if history_of(name) in names)


def _entry(done: FoldDone) -> dict[str, Any]:
    """The journal's entry of a fold."""
    entry = {**vars(done), "snapshot": str(done.snapshot_id), "seconds": round(done.seconds, 3)}
    del entry["snapshot_id"]
    return entry
