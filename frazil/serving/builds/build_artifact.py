"""Build of one artifact from its plan, in a child process whose memory goes with it.

It writes into folders of its parent's workplace and nothing else, so that whatever ends it leaves nothing behind that
anybody would take for an artifact.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from frazil.crash import crash_point
from frazil.registry import ProgressCallback
from frazil.serving.artifacts.parts.duckdb_part import DuckPart
from frazil.serving.artifacts.parts.part import ArtifactPart
from frazil.serving.artifacts.parts.text_part import TextPart
from frazil.serving.artifacts.parts.vector_part import IndexPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.builds.gather_rows import gather
from frazil.serving.builds.plan import BuildOrder, BuildPlan
from frazil.serving.text.layout import TextLayout


def build_artifact(order: BuildOrder, report_progress: ProgressCallback) -> dict[str, Any]:
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
