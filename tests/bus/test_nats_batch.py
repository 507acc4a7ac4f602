"""An atomic batch of NATS, with the server killed exactly while it copies the batch into the stream."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from frazil.bus import Message, Stream, open_bus
from frazil.errors import Unavailable
from tests.contract.servers import NatsServer, running_nats

PARTS = 400
BODY = b"x" * 40_000
ATTEMPTS = 15


def stored_bytes(blocks: Path) -> int:
    return sum(block.stat().st_size for block in blocks.glob("*.blk"))


def kill_while_it_copies(nats: NatsServer, blocks: Path) -> None:
    """The staged batch lies in another folder: once the stream's own files grow, its commit is under way."""
    before = stored_bytes(blocks)
    deadline = time.monotonic() + 120
    while stored_bytes(blocks) == before:
        assert time.monotonic() < deadline, "no commit was seen"
    nats.kill()


async def publish_batch(stream: Stream, messages: list[Message], message_id: str) -> int | None:
    try:
        return await stream.publish(messages, message_id=message_id)
    except Unavailable:
        return None


@pytest.mark.slow
async def test_half_of_a_batch_is_completed_after_a_kill_in_the_middle_of_its_commit() -> None:
    with running_nats() as nats:
        blocks = nats.directory / "jetstream/FRAZIL/streams/frazil-main-orders/msgs"
        bus = await open_bus(nats.url, credentials=nats.credentials, max_bytes=2 << 30)
        stream = await bus.create("main.orders")
        last = await stream.publish([Message(b"first")], message_id="first")
        for attempt in range(ATTEMPTS):
            messages = [Message(BODY, {"part": f"{attempt}.{part}"}) for part in range(PARTS)]
            killing = asyncio.create_task(asyncio.to_thread(kill_while_it_copies, nats, blocks))
            answer = (await asyncio.gather(publish_batch(stream, messages, f"batch-{attempt}"), killing))[0]
            await asyncio.to_thread(nats.start)
            await bus.close()
            bus = await open_bus(nats.url, credentials=nats.credentials, max_bytes=2 << 30)
            stream = await bus.open("main.orders")
            # A repeat of what has no known outcome: written now if it was not, and not twice if it was.
            written_before = await stream.head() - last
            assert written_before in ((0, PARTS) if answer is None else (PARTS,))
            assert await stream.publish(messages, message_id=f"batch-{attempt}") == last + PARTS
            found: list[str] = []
            while batch := await stream.read(last + 1 + len(found)):
                found += [delivery.headers["part"] for delivery in batch]
            assert found == [f"{attempt}.{part}" for part in range(PARTS)]
            last += PARTS
            await stream.trim(last)
            if "Restoring partial batch write" in nats.log.read_text():
                assert written_before == PARTS
                break
        else:
            pytest.fail("no kill hit the middle of a commit")
        await bus.close()
