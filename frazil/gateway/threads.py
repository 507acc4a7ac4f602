"""Threads of the gateway: work that a cancelled request waits for, and the decoding of large bodies.

A thread cannot be stopped. So what it uses stays open, what it changes stays locked, and what it takes stays counted
until it ends, whether or not anybody waits for it still.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(running: asyncio.Future[T]) -> T:
    """The result of work in a thread. A cancellation takes effect when the thread is done: it cannot be stopped."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:
                continue  # the first one is raised below
        if not running.cancelled():
            running.exception()  # nobody is left to raise it to
        raise


async def finish_in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Do it in a thread, to its end: whoever has the next turn finds no other at work."""
    return await to_the_end(asyncio.ensure_future(asyncio.to_thread(work, *arguments)))


class DecodeThreads:
    """Threads for the decoding of large bodies: apart from all other threads, and one for each token at a time.

    60 MB of JSON take seconds of a thread. In the threads that everything else uses, six such bodies would hold up each
    look at the catalog and each line of the audit log.
    """

    def __init__(self, threads: int = 2) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def run(self, token_id: str, work: Callable[[], T], check: Callable[[], Awaitable[None]]) -> T:
        """Do the work when no other of this token is being done. `check` is called then, and raises if nobody waits."""
        turn = self._turns.get(token_id) or asyncio.Lock()
        self._turns[token_id] = turn
        async with turn:
            await check()
            return await to_the_end(asyncio.get_running_loop().run_in_executor(self._executor, work))

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
