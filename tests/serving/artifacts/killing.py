"""A shelf that processes can open by a few words, and children that kill themselves at a named point of their work."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil import crash
from frazil.lake.catalog import open_lake
from frazil.serving.artifacts import PREFIX, LocalCopies, Shelf
from frazil.serving.artifacts.register import Policy
from frazil.storage import Objects, Warehouse, open_objects
from tests.forks import context
from tests.serving.artifacts.samples import TABLE

_SECONDS = 60.0
# What is over is old at once, and two are kept.
AGED = Policy(keep=2, grace_seconds=-60, silent_seconds=-60, lease_seconds=60)


@dataclass(frozen=True)
class Place:
    """A registry and a bucket."""

    catalog: Path
    warehouse: Warehouse

    def objects(self) -> Objects:
        return open_objects(self.warehouse, PREFIX)

    def shelf(self, policy: Policy | None = None) -> Shelf:
        lake = open_lake(f"sqlite:///{self.catalog}", self.warehouse)
        return Shelf(lake.registry, self.objects(), TABLE, policy=policy)

    def copies(self, cache: Path) -> LocalCopies:
        return LocalCopies(cache, self.objects(), TABLE)


def killed_at(point: str, work: Callable[..., None], *arguments: Any) -> bool:
    """Let a child do this work, and kill itself at the point (`name` or `name:3`); False if it never came there."""
    child = context.Process(target=_work, args=(point, work, arguments))
    child.start()
    child.join(_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise AssertionError(f"the child did not end in {_SECONDS} s")
    assert child.exitcode in (0, -signal.SIGKILL), f"it failed by itself: {child.exitcode}"
    return child.exitcode != 0


def _work(point: str, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    name, _, nth = point.partition(":")
    crash._armed[name] = (int(nth or 1), signal.SIGKILL)
    work(*arguments)


def a_round(place: Place, folder: Path, policy: Policy) -> None:
    """What a builder does with a new artifact, then an operator who does not like it, then the clean-up."""
    shelf = place.shelf(policy)
    entry = shelf.publish(folder)
    shelf.promote(entry.generation)
    shelf.rollback("not liked")
    shelf.tidy()


def a_clearance(place: Place) -> None:
    place.shelf().clear()


def a_fetch(place: Place, cache: Path, generation: str, keep: tuple[str, ...]) -> None:
    """What a server does with a new generation."""
    copies = place.copies(cache)
    copies.fetch(place.shelf().register().named(generation))
    copies.prune((*keep, generation))
