"""`bench ingest`: how many events a second the gateway acknowledges, against nats-py publishing the same bytes.

The real NATS server with fsync on every message and the real gateway process; the pipeline is not running, so that the
two have the machine to themselves. Producers and control are processes of their own, and wait for each other's turn.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

from benchmarks.load import EVENTS_PER_BODY, declaration, write_bodies
from benchmarks.processes import Child, a_program, running_parts, scratch_folder, settings_in
from benchmarks.report import Machine, Report, median, say
from frazil.client import Client
from frazil.runtime import DataDir

GOAL_RATIO = 0.5
GOAL_EVENTS_PER_S = 60_000
PRODUCERS = 8
TABLE = "bench"


def run(*, events: int = 400_000, rounds: int = 3) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder:
        settings = settings_in(folder)
        with running_parts(settings, "bus", "gateway") as access:
            token = DataDir(settings.data_dir).read_token()
            with Client(settings.address, token) as client:
                client.create_table(**declaration(TABLE))
            as_producer = {"FRAZIL_URL": settings.address, "FRAZIL_TOKEN": token}
            as_control = {
                "NATS_URL": access["FRAZIL_BUS__URL"],
                "NATS_USER": access["FRAZIL_BUS__USER"],
                "NATS_PASSWORD": access["FRAZIL_BUS__PASSWORD"],
            }
            plain = [sys.executable, str(Path(__file__).parent / "control" / "plain_nats.py")]
            with (
                a_program("producers", folder, environment=as_producer) as producers,
                Child(plain, folder, environment=as_control, talks=True) as control,
            ):
                return _measure(producers, control, folder, machine, events=events, rounds=rounds)


def _measure(producers: Child, control: Child, folder: Path, machine: Machine, *, events: int, rounds: int) -> Report:
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for number in range(rounds + 1):
        warm_up = number == 0
        count = max(EVENTS_PER_BODY * PRODUCERS, events // 10) if warm_up else events
        bodies = folder / "bodies"
        write_bodies(bodies, uuid.uuid4().hex[:16], count)
        mine = producers.ask({"bodies": str(bodies), "table": TABLE, "producers": PRODUCERS})
        plain = control.ask({"bodies": str(bodies), "like": "frazil-", "publishers": PRODUCERS})
        if not warm_up:
            ours.append({**mine, "events_per_s": count / mine["seconds"]})
            theirs.append({**plain, "events_per_s": count / plain["seconds"]})
        name = "warm-up" if warm_up else f"round {number} of {rounds}"
        say(
            f"{name}: gateway {count / mine['seconds']:,.0f} events/s, nats-py {count / plain['seconds']:,.0f} events/s"
        )
    figure = {key: median([one[key] for one in ours]) for key in ("events_per_s", "p50_s", "p99_s")}
    plain_rate = median([one["events_per_s"] for one in theirs])
    ratio = figure["events_per_s"] / plain_rate
    return Report(
        bench="ingest",
        figure={
            **figure,
            "events": events,
            "events_per_request": EVENTS_PER_BODY,
            "producers": PRODUCERS,
            "rounds": [one["events_per_s"] for one in ours],
            "pipeline": "not running",
        },
        control={
            "what": "nats-py publishing the same bodies to a stream with the same settings",
            "events_per_s": plain_rate,
            "rounds": [one["events_per_s"] for one in theirs],
        },
        ratio=ratio,
        goal=f"ratio >= {GOAL_RATIO} and events_per_s >= {GOAL_EVENTS_PER_S}",
        reached=ratio >= GOAL_RATIO and figure["events_per_s"] >= GOAL_EVENTS_PER_S,
        machine=machine,
    )
