"""Periodic work: turns with a pause after each; a turn that fails does not end it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from frazil.errors import FrazilError

log = logging.getLogger(__name__)


async def run_every(seconds: float, turn: Callable[[], Awaitable[object]], *, name: str) -> None:
    """Take turns until cancelled, with a pause after each. A turn that fails is logged, and the next one comes.

    Commits notice a JVM that is gone, and end this process.
    """
    while True:
        try:
            await turn()
        except FrazilError as error:
            log.warning("%s failed: %s", name, error)
        except Exception:
            log.exception("%s failed", name)
        await asyncio.sleep(seconds)
