"""dlt beside the product: a virtual environment made from a locked file, and the control that runs in it.

dlt is no dependency of frazil. Where its environment cannot be made, the benchmark says so and has no such ratio.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import environment_of, last_words
from benchmarks.processes import Child
from benchmarks.report import say
from frazil.errors import Unavailable

_HERE = Path(__file__).parent / "control"
LOCK = _HERE / "requirements-dlt.txt"


@dataclass(frozen=True)
class DltControl:
    """A running control, or the reason why there is none."""

    child: Child | None
    reason: str = ""
    version: str = ""
    pandas: bool = False
    """Whether its environment has pandas, which one of its readers needs."""

    def load(self, folder: Path, **order: str) -> dict[str, Any]:
        """One load into a table of its own below `folder`: its seconds, and the rows of the table."""
        assert self.child is not None
        folder.mkdir(parents=True)
        return self.child.ask({**order, "folder": str(folder)})


def start_dlt(
    running: ExitStack, folder: Path, *, cache: Path | None, wanted: bool, environment: Mapping[str, str] | None = None
) -> DltControl:
    """The control as a child that ends with `running`. Its environment is made below `cache` and kept there, or below
    `folder`, which is gone after the benchmark."""
    if not wanted:
        return DltControl(None, "it was not asked for")
    try:
        python = environment_in(cache or folder)
    except (OSError, subprocess.SubprocessError) as error:
        reason = f"the environment of dlt cannot be made: {last_words(error)}"
        say(reason)
        return DltControl(None, reason)
    command = [str(python), str(_HERE / "plain_dlt.py")]
    child = running.enter_context(Child(command, folder, environment=environment, talks=True))
    try:
        told = child.tell()
        return DltControl(child, version=str(told["dlt"]), pandas=bool(told["pandas"]))
    except Unavailable as error:
        say(f"dlt does not start: {error.details}")
        return DltControl(None, "dlt does not start")


def environment_in(cache: Path) -> Path:
    """The Python of an environment with what the lock names."""
    return environment_of(LOCK, cache, "dlt")
