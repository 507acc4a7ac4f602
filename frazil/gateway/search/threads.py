"""Threads that a cancelled search waits for: what they use stays open, and what they change locked, until they end."""

from __future__ import annotations

import asyncio
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
            running.exception()  # nobody is left to hear it
        raise
