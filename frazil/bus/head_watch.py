"""Head watch: waits for the head of a stream to move.

The server announces a new head. An announcement may be lost, so the server is asked again now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from frazil.errors import Unavailable

_RETRY_SECONDS = 0.2


class HeadWatch:
    """The highest sequence announced so far, and the tasks that wait for a higher one."""

    def __init__(self, look_again_seconds: float) -> None:
        self._look_again_seconds = look_again_seconds
        self._highest = -1
        self._interruptions = 0
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def announce(self, sequence: int) -> None:
        """The server says that the head is at least at this sequence."""
        self._highest = max(self._highest, sequence)
        waited_for, self._next = self._next, asyncio.get_running_loop().create_future()
        waited_for.set_result(None)

    def interrupted(self) -> None:
        """The connection was lost and made again: announcements may have been missed."""
        self._interruptions += 1
        self.announce(self._highest)

    async def wait(self, above: int, timeout_seconds: float, look: Callable[[], Awaitable[int]]) -> int:
        """The head as soon as it is above `above`, or after the time-out. `look` requests it from the server.

        While the server is away this goes on waiting; only at the time-out is that an error.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while self._highest <= above:
            interruptions = self._interruptions
            left = deadline - loop.time()
            try:
                head = await look()
            except Unavailable:
                if left <= 0:
                    raise
                await asyncio.sleep(min(left, _RETRY_SECONDS))
                continue
            if head > above or left <= 0:
                return head
            # An announcement that does not reach `above` needs no request to the server.
            until = min(deadline, loop.time() + self._look_again_seconds)
            while self._highest <= above and self._interruptions == interruptions and loop.time() < until:
                await asyncio.wait((self._next,), timeout=until - loop.time())
        return self._highest
