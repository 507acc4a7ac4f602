"""Word of new artifacts: each listener hears all of it, once, from the moment it began to listen."""

from __future__ import annotations

import pytest

from frazil.bus.memory import MemoryBus
from frazil.errors import BusGap
from frazil.serving.artifacts import AnnouncementReader, announce
from frazil.serving.artifacts.announcements import STREAM


async def test_every_listener_hears_by_itself() -> None:
    bus = MemoryBus()
    first = await AnnouncementReader.open(bus)
    await announce(bus, "main.notes", "g1")
    second = await AnnouncementReader.open(bus)
    await announce(bus, "main.mail", "g1")
    await announce(bus, "main.notes", "g2")
    assert await first.next(timeout_seconds=5) == ["main.mail", "main.notes"]
    assert await second.next(timeout_seconds=5) == ["main.mail", "main.notes"]
    assert await first.next(timeout_seconds=0) == ()
    await announce(bus, "main.notes", "g3")
    assert await first.next(timeout_seconds=5) == ["main.notes"]


async def test_old_words_are_forgotten_and_who_slept_is_told() -> None:
    bus = MemoryBus()
    sleeper = await AnnouncementReader.open(bus)
    for number in range(1_200):
        await announce(bus, "main.notes", str(number))
    stream = await bus.open(STREAM)
    assert await stream.head() - await stream.first() <= 1_100
    with pytest.raises(BusGap):
        await sleeper.next(timeout_seconds=5)
