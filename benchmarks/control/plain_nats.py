"""The control of `bench ingest`: nats-py as its documentation shows it, publishing the same bytes to the same server.

A program and no module of frazil: it knows nothing of it. Asked line by line: a file of bodies to publish, and the
stream whose settings to use, answered with the seconds it took. The stream is made for the round and deleted after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

STREAM = "plain"
SUBJECT = "plain.events"
# A stream of ours says its head to whoever waits and carries its identity: neither has anything to do with storing.
NOT_TAKEN_OVER = ("republish", "metadata")


async def publish_all(bodies: list[bytes], like: str, publishers: int) -> dict[str, Any]:
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    try:
        await _copy_of(client, like)
        js = client.jetstream()
        waiting = iter(bodies)
        started = time.perf_counter()
        await asyncio.gather(*(_publish(js, waiting) for _ in range(publishers)))
        seconds = time.perf_counter() - started
        stored = (await js.stream_info(STREAM)).state.messages
        if stored != len(bodies):
            raise SystemExit(f"{len(bodies)} messages were published and {stored} are stored")
        await js.delete_stream(STREAM)
    finally:
        await client.close()
    return {"seconds": seconds}


async def _publish(js: JetStreamContext, waiting: Iterator[bytes]) -> None:
    for body in waiting:
        await js.publish(SUBJECT, body, timeout=60)


async def _copy_of(client: Client, like: str) -> None:
    """A new stream with the settings of the one whose name begins like this."""
    names = json.loads((await client.request("$JS.API.STREAM.NAMES", b"{}")).data)["streams"]
    like = next(name for name in names if name.startswith(like))
    info = json.loads((await client.request(f"$JS.API.STREAM.INFO.{like}", b"")).data)
    config = {key: value for key, value in info["config"].items() if key not in NOT_TAKEN_OVER}
    config |= {"name": STREAM, "subjects": [SUBJECT]}
    made = json.loads((await client.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(config).encode())).data)
    if "error" in made:
        raise SystemExit(f"the stream could not be made: {made['error']}")


def _read_bodies(path: Path) -> list[bytes]:
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        found.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        bodies = _read_bodies(Path(asked["bodies"]))
        print(json.dumps(asyncio.run(publish_all(bodies, asked["like"], asked["publishers"]))), flush=True)


if __name__ == "__main__":
    main()
