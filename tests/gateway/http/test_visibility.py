"""Waiting for a commit: by the request itself, and by its token later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from frazil.bus import EventBus
from frazil.bus.memory import MemoryBus
from frazil.events import URGENT, Token
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import Running, commit, event, running


async def commit_when_urgent(bus: EventBus, lake: Lake) -> None:
    """What the pipeline does when somebody waits."""
    stream = await bus.open(lake.table("main.orders").stream)
    head = await stream.wait(0, timeout_seconds=120)
    assert (await stream.read(head))[0].headers[URGENT] == "1"
    await commit(bus, lake)


async def test_wait_visible_answers_with_the_snapshot(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        answer, _ = await asyncio.gather(
            gateway.send([event("a")], query="?wait=visible&timeout_s=120"), commit_when_urgent(bus, lake)
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["snapshot_id"] == lake.table("main.orders").snapshot_id
        assert (answer.json()["accepted"], answer.json()["visible"]) == (1, True)
        again = await gateway.send([event("a")], query="?wait=visible")
        assert (again.status_code, again.json()["duplicates"]) == (200, 1)
        assert again.json()["snapshot_id"] == answer.json()["snapshot_id"]


async def test_nobody_waiting_means_no_hurry(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await gateway.accept([event("a")])
    stream = await memory_bus.open(lake.table("main.orders").stream)
    assert URGENT not in (await stream.read(1))[0].headers


async def test_a_commit_that_does_not_come_is_a_504_with_the_receipt(gateway: Running) -> None:
    answer = await gateway.send([event("a")], query="?wait=visible&timeout_s=0.1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "visibility_timeout")
    receipt = answer.json()["error"]["details"]["receipt"]
    assert (receipt["accepted"], receipt["duplicates"]) == (1, 0)
    assert (await gateway.accept([event("a")]))["token"] == receipt["token"]


async def test_asking_by_token(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        first = await gateway.accept([event("a")])
        before = await gateway.http.get("/v1/visibility", params={"token": first["token"]})
        assert before.json()["visible"] is False
        assert before.json()["tables"]["orders"]["snapshot_id"] is None
        one = await commit(bus, lake)
        second = await gateway.accept([event("b")])
        both = str(Token.parse(first["token"]).merge(Token.parse(second["token"])))
        waiting = asyncio.create_task(gateway.http.get("/v1/visibility", params={"token": both, "wait_s": 120}))
        await asyncio.sleep(0.05)
        two = await commit(bus, lake)
        answer = await waiting
        assert answer.json()["visible"] is True
        assert answer.json()["tables"]["orders"]["snapshot_id"] == two.snapshot_id
        earlier = await gateway.http.get("/v1/visibility", params={"token": first["token"]})
        assert earlier.json()["tables"]["orders"]["snapshot_id"] == one.snapshot_id, "the snapshot that brought it"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "bad_token"),
        ("?token=junk", "bad_token"),
        ("?token=fzt1.AAAA", "bad_token"),
        ("?token=x&wait_s=-1", "bad_parameter"),
        ("?token=x&wait_s=nan", "bad_parameter"),
        ("?token=x&wait_s=1e9", "bad_parameter"),
        ("?tokn=x", "unknown_parameter"),
    ],
)
async def test_questions_that_cannot_be(gateway: Running, query: str, code: str) -> None:
    answer = await gateway.http.get(f"/v1/visibility{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)


@pytest.mark.parametrize("query", ["?wait=yes", "?wait=visible&timeout_s=x", "?wait=visible&timeout_s=301", "?wat=1"])
async def test_waits_that_cannot_be(gateway: Running, query: str) -> None:
    answer = await gateway.send([event("a")], query=query)
    assert answer.status_code == 422
    assert (await gateway.accept([event("a")]))["accepted"] == 1, "nothing was written"


async def test_tokens_of_other_streams_and_tables(gateway: Running) -> None:
    answer = await gateway.http.get("/v1/visibility", params={"token": str(Token.of("main.orders", "other", 1))})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "token_of_another_stream")
    answer = await gateway.http.get("/v1/visibility", params={"token": str(Token.of("main.absent", "other", 1))})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "table_not_found")


async def test_a_table_rolled_back_by_hand_is_not_called_visible(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    first = await gateway.accept([event("a")])
    one = await commit(memory_bus, lake)
    await gateway.accept([event("b")])
    two = await commit(memory_bus, lake)
    assert one.snapshot_id is not None
    two.iceberg.manage_snapshots().rollback_to_snapshot(one.snapshot_id).commit()
    await gateway.gateway.directory.refresh()
    answer = await gateway.http.get("/v1/visibility", params={"token": first["token"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "watermark_torn")
