"""`bench demo`: seconds of `frazil demo --once`, from the command to its exit, against the start of Spark alone.

Packages and jars are there already, as after `make setup`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.processes import Child, a_program, scratch_folder
from benchmarks.report import Machine, Report, median, say
from frazil.errors import FrazilError
from frazil.runtime import free_port

GOAL_SECONDS = 60.0
PATIENCE_SECONDS = 600.0


def run(*, rounds: int = 1) -> Report:
    machine = Machine.now()
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(1, rounds + 1):
        with scratch_folder() as folder:
            ours.append(_demo(folder))
            with a_program("bare_spark", folder) as bare:
                theirs.append(float(bare.tell()["seconds"]))
        say(f"round {number} of {rounds}: the demo {ours[-1]:.1f} s, a bare Spark session {theirs[-1]:.1f} s")
    return Report(
        bench="demo",
        figure={"seconds": median(ours), "rounds": ours},
        control={"what": "a bare Spark session, until its first append is done", "seconds": median(theirs)},
        ratio=median(ours) / median(theirs),
        goal=f"seconds <= {GOAL_SECONDS:g}",
        reached=median(ours) <= GOAL_SECONDS,
        machine=machine,
    )


def _demo(folder: Path) -> float:
    command = [sys.executable, "-m", "frazil", "demo", "--once"]
    started = time.perf_counter()
    with Child([*command, "--data", str(folder / "data"), "--port", str(free_port())], folder) as child:
        try:
            code = child.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise FrazilError(f"the demo did not end within {PATIENCE_SECONDS:g} s") from error
        if code != 0:
            raise child.died()
    return time.perf_counter() - started
