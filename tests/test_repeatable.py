"""The verdict of the tests is about the code: random choices are the same in every run, unless a run searches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import drawn_examples


def drawn(folder: Path, *options: str, loads: str = "") -> str:
    """What a run of its own draws, of those tests that `make soak` takes for a search."""
    words = ["-m", "explore", "-q", "-p", "no:cacheprovider", drawn_examples.__file__]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *options],
        cwd=Path(__file__).parent.parent,
        env={
            **os.environ,
            drawn_examples.LOADS: loads,
            "PYTHONHASHSEED": "0",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout + ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("DRAWN")]
    return line


def test_a_run_repeats_the_one_before_and_a_search_does_not(tmp_path: Path) -> None:
    plain = drawn(tmp_path)
    assert drawn(tmp_path, loads="frazil.vault.columns frazil.events.decoding.body frazil.bus.nats") == plain
    assert not (tmp_path / "examples").exists(), "nothing is kept for the next run"
    search = ("--hypothesis-profile=explore", "--hypothesis-seed=7")
    searched = drawn(tmp_path, *search)
    assert searched != plain
    assert drawn(tmp_path, *search) == searched, "by its seed"
