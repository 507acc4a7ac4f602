"""Receipts: each id once, whatever repeats it, and a token that says where it stands."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from frazil.bus import EventBus
from frazil.bus.memory import MemoryBus
from frazil.events import Token
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import Running, commit, event, ndjson, on_the_bus, running, stored_ids


def position(receipt: dict[str, str]) -> int:
    return Token.parse(receipt["token"]).marks["main.orders"].position


async def test_a_receipt_counts_and_its_token_names_the_last_event(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        first = await gateway.accept([event("a"), event("b")])
        second = await gateway.accept([event("c")])
        assert (first["table"], first["accepted"], first["duplicates"]) == ("orders", 2, 0)
        events = await on_the_bus(bus, lake)
    assert events["_id"].to_pylist() == ["a", "b", "c"]
    assert events["item"].to_pylist() == ["ice"] * 3
    assert [position(first), position(second)] == [events["_seq"][1].as_py(), events["_seq"][2].as_py()]


async def test_repeated_ids_are_duplicates_inside_a_request_and_across(
    bus: EventBus, lake: Lake, tmp_path: Path
) -> None:
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        inside = await gateway.accept([event("a"), event("a"), event("b")])
        assert (inside["accepted"], inside["duplicates"]) == (2, 1)
        again = await gateway.accept([event("b"), event("a")])
        assert (again["accepted"], again["duplicates"]) == (0, 2)
        assert position(again) == position(inside)
        mixed = await gateway.accept([event("a"), event("c")])
        assert (mixed["accepted"], mixed["duplicates"]) == (1, 1)
        assert position(mixed) > position(inside)
        assert (await on_the_bus(bus, lake))["_id"].to_pylist() == ["a", "b", "c"]


async def test_an_event_without_id_is_always_new(gateway: Running) -> None:
    for _ in range(2):
        receipt = await gateway.accept([{"data": {"item": "ice"}}])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 0)


async def test_gateways_see_what_the_other_wrote(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as one, running(bus, lake, tmp_path) as other:
        await one.declare()
        await one.accept([event("a")])
        receipt = await other.accept([event("a"), event("b")])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 1)
        receipt = await one.accept([event("b"), event("c")])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 1)
        conflict = await other.send([event("c", amount=99)])
        assert conflict.status_code == 409
        assert (await on_the_bus(bus, lake))["_id"].to_pylist() == ["a", "b", "c"]


async def test_a_gateway_that_slept_learns_from_the_table_what_the_bus_has_trimmed(
    bus: EventBus, lake: Lake, tmp_path: Path
) -> None:
    async with running(bus, lake, tmp_path) as one, running(bus, lake, tmp_path) as other:
        await one.declare()
        await one.accept([event("a")])
        await other.accept([event("b")])
        await one.accept([event("c"), event("d")])
        await commit(bus, lake, trim=True)
        receipt = await other.accept([event("a"), event("c"), event("e")])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 2)
        conflict = await other.send([event("d", item="other")])
        assert conflict.json()["error"]["code"] == "id_conflict"


@pytest.mark.parametrize("committed", [False, True])
async def test_the_ids_survive_a_restart(bus: EventBus, lake: Lake, tmp_path: Path, committed: bool) -> None:
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        first = await gateway.accept([event("a"), event("b")])
        if committed:
            await commit(bus, lake, trim=True)
        await gateway.accept([event("c")])
    async with running(bus, lake, tmp_path) as gateway:
        receipt = await gateway.accept([event("a"), event("b")])
        assert (receipt["accepted"], receipt["duplicates"]) == (0, 2)
        assert position(receipt) == position(first)
        conflict = await gateway.send([event("d"), event("b", amount=7), event("c", amount=7)])
        assert conflict.json()["error"]["details"] == [{"index": 1, "id": "b"}, {"index": 2, "id": "c"}]
        receipt = await gateway.accept([event("d"), event("c")])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 1)
    await commit(bus, lake)
    assert stored_ids(lake) == ["a", "b", "c", "d"]


async def test_an_id_counts_again_after_the_window(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    async with running(memory_bus, lake, tmp_path, dedupe_window_hours=0.05 / 3600) as gateway:
        await gateway.declare()
        await gateway.accept([event("a")])
        await asyncio.sleep(0.06)
        receipt = await gateway.accept([event("a", amount=2)])
        assert (receipt["accepted"], receipt["duplicates"]) == (1, 0)


async def test_the_same_id_with_another_body_is_refused_whole(gateway: Running) -> None:
    await gateway.accept([event("a", amount=1)])
    refused = await gateway.send([event("new"), event("a", amount=2)])
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "id_conflict"
    assert refused.json()["error"]["details"] == [{"index": 1, "id": "a"}]
    receipt = await gateway.accept([event("new")])
    assert receipt["accepted"] == 1, "nothing of the refused request was kept"
    inside = await gateway.send([event("x", amount=1), event("x", amount=2)])
    assert inside.status_code == 409


async def test_requests_that_contradict_each_other_in_one_group(gateway: Running) -> None:
    """They arrive together; the first of each id stands, and whoever leaned on a refused one is judged anew."""
    await gateway.accept([event("old", amount=0)])
    answers = await asyncio.gather(
        gateway.send([event("a", amount=1)]),
        gateway.send([event("old", amount=9), event("b", amount=1)]),
        gateway.send([event("b", amount=2)]),
        gateway.send([event("a", amount=2)]),
        gateway.send([event("b", amount=2), event("a", amount=1)]),
    )
    assert [answer.status_code for answer in answers] == [202, 409, 202, 409, 202]
    assert answers[4].json()["duplicates"] == 2


async def test_hundreds_of_overlapping_requests_count_every_id_once(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    rng = random.Random(7)
    requests = [[event(f"e{rng.randrange(400)}") for _ in range(rng.randrange(1, 30))] for _ in range(300)]
    async with running(bus, lake, tmp_path) as one, running(bus, lake, tmp_path) as other:
        await one.declare()
        gateways = [one, other]
        receipts = await asyncio.gather(
            *(gateways[number % 2].accept(events) for number, events in enumerate(requests))
        )
        on_bus = (await on_the_bus(bus, lake))["_id"].to_pylist()
    ids = {entry["id"] for events in requests for entry in events}
    assert sum(receipt["accepted"] for receipt in receipts) == len(ids)
    assert sum(receipt["duplicates"] for receipt in receipts) == sum(map(len, requests)) - len(ids)
    assert sorted(on_bus) == sorted(ids)


async def test_a_request_larger_than_a_message_is_whole_or_absent(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    rng = random.Random(1)
    events = [event(f"big-{i}", item=rng.randbytes(400).hex()) for i in range(20_000)]
    async with running(bus, lake, tmp_path) as gateway:
        await gateway.declare()
        body = ndjson(events)
        answer = await gateway.http.post(
            "/v1/tables/orders/events", content=body, headers={"content-type": "application/x-ndjson"}
        )
        assert answer.status_code == 202, answer.text
        assert answer.json()["accepted"] == len(events)
        small = await gateway.accept([event("after")])
        found = await on_the_bus(bus, lake)
        stream = await bus.open(lake.table("main.orders").stream)
        assert await stream.head() > 2, "it took several messages"
        repeated = await gateway.accept(events[:2] + events[-2:])
        assert repeated["duplicates"] == 4
        conflict = await gateway.send([event(f"big-{len(events) - 1}", item="other")])
        assert conflict.status_code == 409
    assert found["_id"].to_pylist() == [entry["id"] for entry in events] + ["after"]
    assert position(answer.json()) == found["_seq"][len(events) - 1].as_py()
    assert position(small) == found["_seq"][len(events)].as_py()


async def test_new_columns_come_with_the_events_that_have_them(bus: EventBus, lake: Lake, tmp_path: Path) -> None:
    async with running(bus, lake, tmp_path) as one, running(bus, lake, tmp_path) as other:
        await one.declare(unknown_fields="evolve")
        await one.accept([event("a")])
        answers = await asyncio.gather(
            *(
                gateway.send([{"id": f"n{number}", "data": {"item": "x", f"extra_{number % 3}": number}}])
                for number, gateway in enumerate([one, other] * 6)
            )
        )
        assert [answer.status_code for answer in answers] == [202] * 12, [answer.text for answer in answers]
        spec = lake.table("main.orders").spec
        assert {"extra_0", "extra_1", "extra_2"} <= set(spec.columns)
        rows = {row["_id"]: row for row in (await on_the_bus(bus, lake)).to_pylist()}
    assert len(rows) == 13
    assert all(rows[f"n{number}"][f"extra_{number % 3}"] == number for number in range(12))


async def test_two_requests_that_invent_one_column_with_different_types(gateway: Running) -> None:
    await gateway.declare(name="loose", unknown_fields="evolve")
    answers = await asyncio.gather(
        gateway.send([{"id": "a", "data": {"size": 1}}], table="loose"),
        gateway.send([{"id": "b", "data": {"size": "large"}}], table="loose"),
    )
    assert sorted(answer.status_code for answer in answers) == [202, 422], [answer.text for answer in answers]
