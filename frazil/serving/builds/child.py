"""The process that builds one artifact: a plan comes in, lines of JSON go out, and its memory goes with it.

`python -m frazil.serving.builds.child` is started by `process.py`. It writes into folders of its parent's workplace
and nothing else, so that whatever ends it leaves nothing behind that anybody would take for an artifact.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import sys
import time
from dataclasses import asdict
from typing import Any, TextIO

from frazil.crash import crash_point
from frazil.errors import FrazilError
from frazil.registry import ProgressCallback
from frazil.serving.artifacts.parts.duckdb_part import DuckPart
from frazil.serving.artifacts.parts.part import ArtifactPart
from frazil.serving.artifacts.parts.text_part import TextPart
from frazil.serving.artifacts.parts.vector_part import IndexPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.builds.gather_rows import gather
from frazil.serving.builds.plan import BuildOrder, BuildPlan
from frazil.serving.text.layout import TextLayout

NICE = 10
"""Commits and answers come first."""
_PR_SET_PDEATHSIG = 1


def built(order: BuildOrder, report_progress: ProgressCallback) -> dict[str, Any]:
    """Build the artifact into its folder; the report, as far as it is known here."""
    plan, seconds = order.plan, {}
    began = time.monotonic()
    gathered = gather(plan, order.spill, report_progress)
    seconds["read"] = round(time.monotonic() - began, 3)
    crash_point("build_gathered")
    report_progress({"indexed": 0, "of": gathered.taken.kept + gathered.taken.read})
    manifest = write_artifact(gathered.source, order.artifact, _parts(plan), generation=order.generation)
    return {"seconds": {**seconds, **manifest.seconds}, "taken": asdict(gathered.taken)}


def _parts(plan: BuildPlan) -> list[ArtifactPart]:
    # The one that takes longest first: the others are written meanwhile.
    parts: list[ArtifactPart] = [DuckPart(dims=plan.model.dims, vss=plan.vss), IndexPart(plan.index)]
    return [*parts, TextPart(TextLayout(plan.spec.text))] if plan.spec.text else parts


def main() -> int:
    order = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    _die_with(order.parent)
    os.nice(NICE)
    # What libraries print belongs into the log, not between our lines.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**words: Any) -> None:
        _said(out, words)

    try:
        say(report=built(order, lambda progress: say(progress=progress)))
    except FrazilError as error:
        say(error=error.body()["error"], transient=error.transient)
    except MemoryError:
        told = "the process that builds has not enough memory"
        hint = "give the machine more, or search fewer columns and chunks"
        say(error={"code": "build_out_of_memory", "message": told, "hint": hint}, transient=False)
    return 0


def _said(out: TextIO, words: dict[str, Any]) -> None:
    print(json.dumps(words, default=str), file=out, flush=True)


def _die_with(parent: int) -> None:
    """Be killed when the parent ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    raise SystemExit(main())
