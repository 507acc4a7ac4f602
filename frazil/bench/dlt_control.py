"""dlt beside the product: a virtual environment made from a locked file, and the control that runs in it.

dlt is no dependency of frazil. Where its environment cannot be made, the benchmark says so and has no such ratio.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.bench.processes import Child
from frazil.bench.report import say
from frazil.errors import Unavailable

_HERE = Path(__file__).parent / "control"
LOCK = _HERE / "requirements-dlt.txt"
_INSTALL_SECONDS = 900.0


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
        reason = f"the environment of dlt cannot be made: {_last_words(error)}"
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
    """The Python of an environment with what the lock names: the one that is there already, or a new one."""
    kind = f"{LOCK.read_text()} {sys.version_info[:2]}"
    place = cache / f"dlt-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
    python, complete = place / "bin" / "python", place / "complete"
    if complete.exists():
        return python
    say("making the environment of dlt; a few minutes")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    venv.create(place, with_pip=True, clear=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*install, "--require-hashes", "--only-binary", ":all:", "--requirement", str(LOCK)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        cwd=place,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    complete.touch()
    return python


def _last_words(error: Exception) -> str:
    told = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(told).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
