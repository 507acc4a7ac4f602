"""Virtual environments of controls that are no dependencies of frazil: made from a locked file, used again."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.report import say

_INSTALL_SECONDS = 900.0


def environment_of(lock: Path, cache: Path, name: str) -> Path:
    """The Python of an environment with what the lock names: the one that is there already, or a new one."""
    kind = f"{lock.read_text()} {sys.version_info[:2]}"
    place = cache / f"{name}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
    python, complete = place / "bin" / "python", place / "complete"
    if complete.exists():
        return python
    say(f"making the environment of {name}; a few minutes")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    venv.create(place, with_pip=True, clear=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*install, "--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        cwd=place,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    complete.touch()
    return python


def last_words(error: Exception) -> str:
    """Of a failed installation: the line that says why."""
    told = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(told).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
