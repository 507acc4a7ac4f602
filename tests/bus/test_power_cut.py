"""A power cut of the bus: what was acknowledged is on the disk, not in the memory of the machine.

The server runs on a file system inside an image file. It is stopped in the middle of its work, and the image file is
copied: the copy has what reached the disk and nothing that only the page cache knew. A second server starts on it.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from frazil.bus import Delivery, Message, Stream, open_bus
from frazil.errors import Unavailable
from tests.contract.servers import NatsServer, PostgresServer, Server, ServerDidNotStart, scratch_directory

pytestmark = pytest.mark.slow

IMAGE_BYTES = 512 << 20
LOAD_SECONDS = 2.0
PATIENCE_SECONDS = 120.0
PARTS = 8


@contextmanager
def disk(image: Path, mountpoint: Path) -> Iterator[Path]:
    """The file system of an image, with nothing written to it but what is synced (the journal is left alone)."""
    mountpoint.mkdir()
    mounted = subprocess.run(
        ["mount", "-o", "loop,commit=300", str(image), str(mountpoint)], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"this machine does not let us mount: {mounted.stderr.strip()}")
    try:
        yield mountpoint
    finally:
        subprocess.run(["umount", str(mountpoint)], check=True)


def new_image(path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    with path.open("wb") as image:
        image.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(path)], check=True)
    return path


def nats_on(directory: Path, edit: Callable[[str], str] = lambda text: text) -> Server:
    return NatsServer(directory, max_file_store_bytes=2 << 30, edit=edit)


def lazy_nats_on(directory: Path) -> Server:
    return nats_on(directory, lambda text: text.replace("sync_interval: always", "sync_interval: 2m"))


def postgres_on(directory: Path) -> Server:
    server = PostgresServer(directory)
    if not (directory / "data").exists():
        server.initialise()
    return server


def lazy_postgres_on(directory: Path) -> Server:
    server = PostgresServer(directory, options={"fsync": "off"})
    if not (directory / "data").exists():
        server.initialise()
    return server


class Outcome:
    """What the producers were told, and what a reader finds after the power came back."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.groups: dict[str, int] = {}
        self.found: list[Delivery] = []
        self.identities: set[str] = set()

    @property
    def lost(self) -> list[int]:
        there = {delivery.sequence: delivery.body for delivery in self.found}
        return [sequence for sequence, body in self.acknowledged.items() if there.get(sequence) != body]


async def cut_power(start: Callable[[Path], Server], scratch: Path) -> Outcome:
    """Publish from several producers, cut the power, and read what the other machine finds on the disk."""
    outcome = Outcome()
    image = new_image(scratch / "disk.img")
    with ExitStack() as stack:
        server = start(stack.enter_context(disk(image, scratch / "before")))
        stack.callback(server.kill)
        server.start()
        bus = await open_bus(server.url, credentials=server.credentials, max_bytes=256 << 20)
        stream = await bus.create("main.orders")
        outcome.identities.add(stream.identity)
        # What a server did before the load shall be on the disk in any case: the question is about the messages.
        subprocess.run(["sync", "-f", str(scratch / "before")], check=True)
        producers = [asyncio.create_task(produce(stream, outcome, number)) for number in range(4)]
        producers.append(asyncio.create_task(produce_groups(stream, outcome)))
        await asyncio.sleep(LOAD_SECONDS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(outcome.acknowledged) <= 50 or len(outcome.groups) <= 2:
                await asyncio.sleep(0.05)
        server.pause()  # back when no thread is in the middle of a sync any more
        copy = scratch / "copy.img"
        subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
        # Killed while it is stopped: acks that were sent before the cut still arrive, and no later ones.
        server.kill()
        await asyncio.gather(*producers)
        await bus.close()
        await read_copy(start, stack.enter_context(disk(copy, scratch / "after")), outcome, stack)
    return outcome


async def read_copy(start: Callable[[Path], Server], directory: Path, outcome: Outcome, stack: ExitStack) -> None:
    for leftover in ("nats.pid", "data/postmaster.pid"):
        (directory / leftover).unlink(missing_ok=True)
    server = start(directory)
    stack.callback(server.kill)
    server.start()
    bus = await open_bus(server.url, credentials=server.credentials, max_bytes=256 << 20)
    try:
        stream = await bus.open("main.orders")
        outcome.identities.add(stream.identity)
        while batch := await stream.read(1 + len(outcome.found)):
            outcome.found += batch
        assert await stream.head() == len(outcome.found)
        again = await stream.publish([Message(b"after")], message_id="after", expected_last=len(outcome.found))
        assert again == len(outcome.found) + 1
    finally:
        await bus.close()


async def produce(stream: Stream, outcome: Outcome, producer: int) -> None:
    for number in range(1_000_000):
        body = f"{producer}.{number}.".encode() * 40
        try:
            sequence = await stream.publish([Message(body)], message_id=f"{producer}.{number}")
        except Unavailable:
            return
        outcome.acknowledged[sequence] = body


async def produce_groups(stream: Stream, outcome: Outcome) -> None:
    for number in range(1_000_000):
        messages = [Message(random.randbytes(3000), {"group": str(number), "part": str(part)}) for part in range(PARTS)]
        try:
            last = await stream.publish(messages, message_id=f"group.{number}")
        except Unavailable:
            return
        outcome.groups[str(number)] = last
        for sequence, message in enumerate(messages, last - PARTS + 1):
            outcome.acknowledged[sequence] = message.body


@pytest.mark.parametrize("start", [nats_on, postgres_on])
async def test_every_acknowledged_message_survives_a_power_cut(start: Callable[[Path], Server]) -> None:
    with scratch_directory("power") as scratch:
        outcome = await cut_power(start, scratch)
    assert outcome.lost == []
    assert len(outcome.identities) == 1
    assert [delivery.sequence for delivery in outcome.found] == list(range(1, len(outcome.found) + 1))
    parts: dict[str, list[str]] = {}
    for delivery in outcome.found:
        if "group" in delivery.headers:
            parts.setdefault(delivery.headers["group"], []).append(delivery.headers["part"])
    whole = [str(part) for part in range(PARTS)]
    assert {group: found for group, found in parts.items() if found != whole} == {}


@pytest.mark.parametrize("start", [lazy_nats_on, lazy_postgres_on])
async def test_a_server_that_does_not_sync_does_lose_them(start: Callable[[Path], Server]) -> None:
    """The control: the same test sees the loss where there is one."""
    with scratch_directory("power") as scratch:
        try:
            outcome = await cut_power(start, scratch)
        except ServerDidNotStart:
            # A database without fsync may be left in pieces that do not even start.
            return
    assert outcome.lost
