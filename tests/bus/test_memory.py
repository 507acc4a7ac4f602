"""The knobs of the bus in memory, with which simulations break things."""

from __future__ import annotations

import pytest

from frazil.bus import Message, open_bus
from frazil.bus.memory import MemoryBus
from frazil.errors import BusGap, BusReplaced, Misconfigured, Unavailable


async def test_a_lost_reply_leaves_the_message_written() -> None:
    bus = MemoryBus()
    stream = await bus.create("main.orders")
    bus.lose_replies = 1
    with pytest.raises(Unavailable):
        await stream.publish([Message(b"a")], message_id="one")
    assert await stream.head() == 1
    assert await stream.publish([Message(b"a")], message_id="one") == 1


async def test_a_failed_publish_leaves_nothing() -> None:
    bus = MemoryBus()
    stream = await bus.create("main.orders")
    bus.fail_publishes = 2
    for _ in range(2):
        with pytest.raises(Unavailable):
            await stream.publish([Message(b"a")], message_id="one")
    assert await stream.head() == 0
    assert await stream.publish([Message(b"a")], message_id="one") == 1


async def test_a_bus_that_is_down_does_nothing() -> None:
    bus = MemoryBus()
    stream = await bus.create("main.orders")
    bus.down = True
    for call in (stream.publish([Message(b"a")], message_id="one"), stream.head(), stream.read(1), bus.names()):
        with pytest.raises(Unavailable):
            await call
    bus.down = False
    assert await stream.head() == 0


async def test_message_ids_are_forgotten_after_the_window() -> None:
    now = 0.0
    bus = MemoryBus(clock=lambda: now, duplicate_window_seconds=120)
    stream = await bus.create("main.orders")
    assert await stream.publish([Message(b"a")], message_id="one") == 1
    now = 119.0
    assert await stream.publish([Message(b"a")], message_id="one") == 1
    now = 121.0
    assert await stream.publish([Message(b"a")], message_id="one") == 2


async def test_damage_is_seen_by_readers() -> None:
    bus = MemoryBus()
    stream = await bus.create("main.orders")
    await stream.publish([Message(b"a")] * 4, message_id="one")
    bus.cut_end("main.orders", 2)
    assert await stream.head() == 2
    with pytest.raises(BusGap):
        await stream.read(5)
    assert await stream.publish([Message(b"a")] * 4, message_id="one") == 6
    bus.drop("main.orders", 4)
    with pytest.raises(BusGap):
        await stream.read(1)
    anew = await bus.replace("main.orders", first_sequence=10)
    with pytest.raises(BusReplaced):
        await stream.read(1)
    assert await anew.publish([Message(b"a")], message_id="one") == 10


async def test_the_opener_knows_its_schemes() -> None:
    assert isinstance(await open_bus("memory:"), MemoryBus)
    with pytest.raises(Misconfigured) as error:
        await open_bus("carrier-pigeon://loft")
    assert "nats://" in error.value.hint
