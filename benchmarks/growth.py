"""`bench growth`: whether a commit gets slower as a table gets older, with the product's own maintenance on.

Small commits through the real committer and Spark; the bus is in memory, because it has no part in this. At the end an
old table and a young one are committed to in turn, so that both meet the same machine: the ratio is theirs. How the old
one fared on its way is in `curve`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.processes import scratch_folder, settings_in
from benchmarks.report import Machine, Report, median, say
from benchmarks.workbench import Profile, Workbench, spark_workbench
from frazil.bus import Stream
from frazil.bus.memory import MemoryBus
from frazil.errors import FrazilError
from frazil.lake.catalog import LakeTable
from frazil.pipeline import pipeline as service
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.settings import Settings
from frazil.storage import local_path

GOAL_RATIO = 1.5
EVENTS_PER_COMMIT = 10
_CURVE_POINTS = 20
_NEIGHBOURS = 25


@dataclass(frozen=True)
class Sample:
    """One commit."""

    seconds: float
    stage: float
    publish: float


class Grower:
    """One table that is committed to again and again, and tidied as the pipeline does it."""

    def __init__(self, bench: Workbench, settings: Settings, stream: Stream, name: str) -> None:
        self._spec = load.spec(name)
        self._lake = bench.lake
        self._stream = stream
        self._budget = settings.pipeline.snapshot_budget
        self._table = bench.lake.create(self._spec, stream=name, identity=stream.identity)
        self._target = SparkCommitTarget(bench.lake, self._table.name, bench.session)
        window = settings.ingest.dedupe_window_hours * 3600
        self._committer = Committer(
            self._target,
            stream,
            window_seconds=window,
            limits=BatchLimits(max_age_seconds=settings.pipeline.max_batch_age_seconds),
        )
        self.samples: list[Sample] = []

    async def commit(self) -> Sample:
        message = load.messages(self._spec, uuid.uuid4().hex[:16], EVENTS_PER_COMMIT, per_message=EVENTS_PER_COMMIT)
        await self._stream.publish(message, message_id=uuid.uuid4().hex)
        profile = Profile()
        started = time.perf_counter()
        with profile.of_commits():
            if await self._committer.cycle(idle_seconds=0.0, draining=True) is None:
                raise FrazilError("there was an event and no commit")
        seconds = time.perf_counter() - started
        self.samples.append(Sample(seconds, profile.seconds["stage"], profile.seconds["publish"]))
        if len(self.samples) % service._TIDY_EVERY_COMMITS == 0:
            await asyncio.to_thread(self._target.tidy, keep_snapshots=self._budget)
        return self.samples[-1]

    def point(self) -> dict[str, Any]:
        """Where the curve is now: medians of the last commits, and the size of what each of them writes."""
        table = self._lake.table(self._table.name)
        metadata = local_path(table.metadata_location)
        recent = self.samples[-_NEIGHBOURS:]
        return {
            "commit": len(self.samples),
            "seconds": median([sample.seconds for sample in recent]),
            "stage_s": median([sample.stage for sample in recent]),
            "publish_s": median([sample.publish for sample in recent]),
            "metadata_bytes": metadata.stat().st_size,
            "snapshots": len(table.snapshots()),
            "manifests": _manifests(table),
            "files_in_metadata_folder": _count(metadata.parent),
        }


def run(*, commits: int = 2_000, young: int = 100, measured: int = 50) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder:
        settings = settings_in(folder)
        with spark_workbench(settings) as bench:
            old, new, curve = asyncio.run(_measure(bench, settings, commits=commits, young=young, measured=measured))
    ratio = median([sample.seconds for sample in old]) / median([sample.seconds for sample in new])
    return Report(
        bench="growth",
        figure={"commits": commits, **_medians(old), "curve": curve},
        control={"what": f"a table with {young} commits behind it, in turn with the old one", **_medians(new)},
        ratio=ratio,
        goal=f"ratio <= {GOAL_RATIO}",
        reached=ratio <= GOAL_RATIO,
        machine=machine,
    )


async def _measure(
    bench: Workbench, settings: Settings, *, commits: int, young: int, measured: int
) -> tuple[list[Sample], list[Sample], list[dict[str, Any]]]:
    bus = MemoryBus()
    old = Grower(bench, settings, await bus.create("old"), "old")
    new = Grower(bench, settings, await bus.create("young"), "young")
    curve = []
    every = max(1, commits // _CURVE_POINTS)
    for number in range(1, commits + 1):
        await old.commit()
        if number % every == 0 or number == young:
            curve.append(old.point())
            say(f"commit {number} of {commits}: {curve[-1]['seconds']:.3f} s, {curve[-1]['snapshots']} snapshots")
    while len(new.samples) < young:
        await new.commit()
    pairs = [(await old.commit(), await new.commit()) for _ in range(measured)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], curve


def _medians(samples: list[Sample]) -> dict[str, float]:
    return {
        "seconds": median([sample.seconds for sample in samples]),
        "stage_s": median([sample.stage for sample in samples]),
        "publish_s": median([sample.publish for sample in samples]),
    }


def _manifests(table: LakeTable) -> int:
    current = table.iceberg.metadata.current_snapshot()
    return len(current.manifests(table.iceberg.io)) if current else 0


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())
