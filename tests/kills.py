"""Real kills, many of them and quickly: each in a process that is forked from one which has imported everything.

The work is a function of a module, and is given what it needs to open the same things by itself.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil import crash
from frazil.lake.catalog import Lake, open_lake
from frazil.storage import Warehouse
from tests.forks import context

_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Address:
    """With what another process opens the same lake."""

    url: str
    warehouse: Warehouse
    name: str
    user: str = ""
    password: str = ""

    def open(self) -> Lake:
        return open_lake(self.url, self.warehouse, name=self.name, user=self.user, password=self.password)


def address(lake: Lake) -> Address:
    url = lake.catalog.engine.url
    if url.drivername == "sqlite":
        return Address(f"sqlite:///{url.database}", lake.warehouse, lake.catalog.name)
    plain = f"postgresql://{url.host}:{url.port}/{url.database}"
    return Address(plain, lake.warehouse, lake.catalog.name, url.username or "", str(url.password or ""))


def killed_at(stop: str, work: Callable[..., object], *arguments: Any) -> None:
    """Do the work in another process, which must die of SIGKILL at a crash point (`name:3`: the third time there)."""
    assert _ended(work, arguments, stop) == -signal.SIGKILL, f"it was not killed at {stop}"


def finished(work: Callable[..., object], *arguments: Any) -> None:
    """Do it in another process, as the one that comes after a killed one."""
    assert _ended(work, arguments, "") == 0, "it failed"


def is_killed_at(stop: str, work: Callable[..., object], *arguments: Any) -> bool:
    """The same, where the work may be over before it comes there so often; it is done then."""
    code = _ended(work, arguments, stop)
    assert code in (0, -signal.SIGKILL), f"it failed on the way to {stop}"
    return code == -signal.SIGKILL


def _ended(work: Callable[..., object], arguments: tuple[Any, ...], stop: str) -> int:
    name, _, nth = stop.partition(":")
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        process = context.Process(target=_work, args=(folder, name, int(nth or 1), work, arguments))
        process.start()
        process.join(_PATIENCE_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"it never came to {stop}")
        assert (process.exitcode == -signal.SIGKILL) == (Path(folder) / name).is_file(), "another killed it"
        return process.exitcode


def _work(folder: str, name: str, nth: int, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    os.environ["FRAZIL_CRASH_TRACE"] = folder
    if name:
        crash._armed[name] = (nth, signal.SIGKILL)
    work(*arguments)
