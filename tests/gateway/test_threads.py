"""A search that is given up waits for its thread: what the thread reads must not be closed under it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from frazil.gateway.threads import DecodeThreads, to_the_end


async def test_a_cancellation_waits_for_the_thread() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> int:
        go.wait(30)
        done.set()
        raise ValueError("nobody is left to hear this")

    waiting = asyncio.create_task(_in_thread(work))
    await asyncio.sleep(0.05)
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0.02)
        assert not waiting.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done.is_set()


async def test_without_one_it_is_the_result_or_the_error() -> None:
    assert await _in_thread(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await _in_thread(lambda: 1 // 0)


async def _in_thread(work: Callable[[], int]) -> int:
    return await to_the_end(asyncio.get_running_loop().run_in_executor(None, work))


async def test_a_token_decodes_one_body_at_a_time_and_leaves_a_thread_to_others() -> None:
    threads = DecodeThreads(2)
    go = threading.Event()
    begun: list[str] = []

    def work(name: str) -> Callable[[], None]:
        def decode() -> None:
            begun.append(name)
            go.wait(60)

        return decode

    greedy = [asyncio.create_task(threads.run("greedy", work("greedy"), nobody_left)) for _ in range(5)]
    await asyncio.sleep(0)
    for one in greedy[:2]:  # whoever hangs up frees no thread: the work goes on
        one.cancel()
    other = asyncio.create_task(threads.run("other", work("other"), nobody_left))
    async with asyncio.timeout(60):
        while "other" not in begun:
            await asyncio.sleep(0.01)
    assert begun.count("greedy") <= 1
    go.set()
    await asyncio.gather(other, *greedy, return_exceptions=True)
    threads.close()


async def nobody_left() -> None:
    """Everybody is still connected."""


async def test_what_waited_for_its_turn_is_not_done_for_one_who_has_left() -> None:
    threads = DecodeThreads(2)
    go = threading.Event()
    done: list[str] = []

    async def left() -> None:
        raise ConnectionError("the caller hung up")

    first = asyncio.create_task(threads.run("token", lambda: go.wait(60), nobody_left))
    await asyncio.sleep(0)
    second = asyncio.create_task(threads.run("token", lambda: done.append("second"), left))
    third = asyncio.create_task(threads.run("token", lambda: done.append("third"), nobody_left))
    await asyncio.sleep(0)
    go.set()
    assert await first
    with pytest.raises(ConnectionError):
        await second
    await third
    assert done == ["third"]
    threads.close()
