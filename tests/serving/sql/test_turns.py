"""Whose turn it is, without any worker."""

from __future__ import annotations

import asyncio

import pytest

from frazil.serving import Busy, QuerySettings, QueryTimeout
from frazil.serving.sql.turns import Turn, Turns


def turns(**settings: int) -> Turns:
    return Turns(QuerySettings.model_validate({"workers": 1, "slow_workers": 2, "slow_per_owner": 1, **settings}))


async def waiting(lanes: Turns, owner: str, seconds: float = 30.0) -> asyncio.Task[Turn]:
    task = asyncio.create_task(lanes.wait(owner, asyncio.get_running_loop().time() + seconds))
    await asyncio.sleep(0)
    return task


async def test_owners_take_turns_however_many_queries_one_has() -> None:
    lanes = turns()
    current = await (await waiting(lanes, "ann"))
    crowd = [await waiting(lanes, owner) for owner in ("eve", "eve", "eve", "bob", "eve", "cid")]
    served = []
    for _ in crowd:
        lanes.leave(current)
        done, _ = await asyncio.wait([task for task in crowd if task not in served], return_when="FIRST_COMPLETED")
        (task,) = done
        served.append(task)
        current = task.result()
    assert [task.result().owner for task in served] == ["eve", "bob", "cid", "eve", "eve", "eve"]
    lanes.leave(current)
    assert (lanes.quick, lanes.slow, lanes.waiting) == (0, 0, 0)


async def test_a_slow_query_makes_room_and_its_owner_waits() -> None:
    lanes = turns()
    slow = await (await waiting(lanes, "eve"))
    next_of_eve, next_of_ann = await waiting(lanes, "eve"), await waiting(lanes, "ann")
    assert lanes.move_aside(slow)
    ann = await asyncio.wait_for(next_of_ann, 60)
    assert not next_of_eve.done()
    lanes.leave(ann)
    await asyncio.sleep(0)
    assert not next_of_eve.done()
    assert lanes.leave(slow) is None
    assert (await asyncio.wait_for(next_of_eve, 60)).owner == "eve"


async def test_a_full_slow_lane_takes_the_next_when_one_leaves() -> None:
    lanes = turns(workers=2, slow_workers=1)
    first, second = await (await waiting(lanes, "a")), await (await waiting(lanes, "b"))
    assert lanes.move_aside(first)
    assert not lanes.move_aside(second)
    assert (lanes.quick, lanes.slow) == (1, 1)
    assert lanes.leave(first) is second
    assert second.slow
    assert (lanes.quick, lanes.slow) == (0, 1)
    assert lanes.leave(second) is None
    assert (lanes.quick, lanes.slow) == (0, 0)


async def test_who_gives_up_leaves_no_trace() -> None:
    lanes = turns()
    current = await (await waiting(lanes, "ann"))
    late = await waiting(lanes, "bob", 0.01)
    cancelled = await waiting(lanes, "cid")
    with pytest.raises(QueryTimeout):
        await late
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert lanes.waiting == 0
    # Granted and cancelled in the same moment: the place is not lost.
    unlucky = await waiting(lanes, "dan")
    lanes.leave(current)
    unlucky.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unlucky
    assert (lanes.quick, lanes.waiting) == (0, 0)


async def test_limits_of_waiting() -> None:
    lanes = turns(max_queued_per_owner=2, max_queued=3)
    current = await (await waiting(lanes, "ann"))
    tasks = [await waiting(lanes, owner) for owner in ("eve", "eve", "bob")]
    for owner in ("eve", "cid"):
        with pytest.raises(Busy):
            await lanes.wait(owner, asyncio.get_running_loop().time() + 1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    lanes.leave(current)
    assert (lanes.quick, lanes.waiting) == (0, 0)


async def test_who_has_a_slow_query_leaves_the_last_place_to_others() -> None:
    lanes = turns(workers=2, slow_per_owner=2)
    first = await (await waiting(lanes, "eve"))
    assert lanes.move_aside(first)
    second, third = await waiting(lanes, "eve"), await waiting(lanes, "eve")
    assert (await second).owner == "eve"
    await asyncio.sleep(0)
    assert not third.done()
    assert (await (await waiting(lanes, "bob"))).owner == "bob"
    lanes.leave(first)
    lanes.leave(second.result())
    assert (await third).owner == "eve"
