"""`bench commit`: how fast a backlog on the bus becomes rows of an Iceberg table, against Spark appending the same.

The events are on a real NATS server first. The drain is the pipeline's own: read, decode, judge, stage, audit, sync to
the disk, publish, trim. The control reads the same rows from Parquet and appends them in one job of the same session,
to a table with the same properties but for write-audit-publish, and syncs nothing.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import load
from benchmarks.processes import running_parts, scratch_folder, settings_in
from benchmarks.report import Machine, Report, median, say
from benchmarks.workbench import Profile, TimedStream, Workbench, spark_workbench
from frazil.bus import EventBus, Message, Stream, open_bus
from frazil.errors import FrazilError
from frazil.events import ROWS
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.settings import Settings

GOAL_RATIO = 0.6
EVENTS_PER_MESSAGE = 2_000
"""What the gateway puts into one message when eight producers send batches of 500: it groups what arrives together."""
_ROWS_PER_GROUP = 100_000


def run(*, events: int = 1_000_000, rounds: int = 3) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder:
        settings = settings_in(folder)
        with running_parts(settings, "bus") as access, spark_workbench(settings) as bench:
            measured = asyncio.run(_measure(bench, settings, access, folder, events=events, rounds=rounds))
    ours, theirs, profiles = measured
    ratio = median(theirs) / median(ours)
    steps = {step for profile in profiles for step in profile.seconds}
    return Report(
        bench="commit",
        figure={
            "rows_per_s": events / median(ours),
            "seconds": median(ours),
            "rows": events,
            "events_per_message": EVENTS_PER_MESSAGE,
            "rounds": [events / seconds for seconds in ours],
            "profile_s": {
                step: median([profile.seconds.get(step, 0.0) for profile in profiles]) for step in sorted(steps)
            },
        },
        control={
            "what": "one Spark job in the same session, from Parquet to an Iceberg table",
            "rows_per_s": events / median(theirs),
            "seconds": median(theirs),
            "rounds": [events / seconds for seconds in theirs],
        },
        ratio=ratio,
        goal=f"ratio >= {GOAL_RATIO}",
        reached=ratio >= GOAL_RATIO,
        machine=machine,
    )


async def _measure(
    bench: Workbench, settings: Settings, access: Any, folder: Path, *, events: int, rounds: int
) -> tuple[list[float], list[float], list[Profile]]:
    spec = load.spec("backlog")
    backlog = await asyncio.to_thread(
        load.messages, spec, uuid.uuid4().hex[:16], events, per_message=EVENTS_PER_MESSAGE
    )
    parquet = folder / "rows.parquet"
    # Row groups are what Spark's tasks share out among themselves: enough of them for all cores.
    await asyncio.to_thread(
        pq.write_table, load.as_rows(spec, backlog), parquet, compression="zstd", row_group_size=_ROWS_PER_GROUP
    )
    say(f"{events:,} events are made")
    credentials = {key: access[f"FRAZIL_BUS__{key.upper()}"] for key in ("user", "password")}
    bus = await open_bus(access["FRAZIL_BUS__URL"], credentials=credentials)
    ours: list[float] = []
    theirs: list[float] = []
    profiles: list[Profile] = []
    try:
        for number in range(rounds + 1):
            profile = Profile()
            mine = await _drain(bench, settings, bus, f"ours_{number}", backlog, profile)
            plain = await asyncio.to_thread(_append, bench, parquet, f"control_{number}")
            name = "warm-up" if number == 0 else f"round {number} of {rounds}"
            say(f"{name}: drain {events / mine:,.0f} rows/s, Spark alone {events / plain:,.0f} rows/s")
            if number:
                ours.append(mine)
                theirs.append(plain)
                profiles.append(profile)
    finally:
        await bus.close()
    return ours, theirs, profiles


async def _drain(
    bench: Workbench, settings: Settings, bus: EventBus, name: str, backlog: list[Message], profile: Profile
) -> float:
    """Seconds from the first look at the stream to the last trim."""
    stream = await bus.create(name)
    table = bench.lake.create(load.spec(name), stream=name, identity=stream.identity)
    await _fill(stream, backlog)
    limits = BatchLimits(
        max_rows=settings.pipeline.max_batch_rows,
        max_bytes=int(settings.pipeline.max_batch_bytes),
        max_age_seconds=settings.pipeline.max_batch_age_seconds,
    )
    with ThreadPoolExecutor(settings.pipeline.parallel_tables) as executor, profile.of_commits():
        committer = Committer(
            SparkCommitTarget(bench.lake, table.name, bench.session),
            TimedStream(stream, profile),
            window_seconds=settings.ingest.dedupe_window_hours * 3600,
            limits=limits,
            executor=executor,
        )
        started = time.perf_counter()
        while await committer.cycle(idle_seconds=0.0, draining=True):
            continue
        seconds = time.perf_counter() - started
    found, expected = bench.lake.table(table.name).rows, sum(int(message.headers[ROWS]) for message in backlog)
    if found != expected:
        raise FrazilError(f"{expected} events were on the bus and {found} rows are in the table")
    bench.lake.drop(table.name)
    await bus.delete(name)
    return seconds


async def _fill(stream: Stream, backlog: list[Message]) -> None:
    for number, message in enumerate(backlog):
        await stream.publish([message], message_id=str(number))


def _append(bench: Workbench, parquet: Path, name: str) -> float:
    table = bench.lake.create(load.spec(name), stream="", identity="")
    bench.lake.set_properties(table.name, {"write.wap.enabled": "false"})
    started = time.perf_counter()
    bench.session.read.parquet(str(parquet)).writeTo(f"{bench.lake.catalog.name}.{table.name}").append()
    seconds = time.perf_counter() - started
    bench.lake.drop(table.name)
    return seconds
