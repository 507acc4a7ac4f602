"""`bench freshness`: seconds from sending one event to its being committed and visible, against a bare Spark append.

The whole product runs as `frazil up` starts it. One event at a time, over HTTP, with `?wait=visible`: the time holds
the receipt, the pipeline's notice, stage, audit, sync, publish, and the gateway's notice of it. The control is another
process with a warm Spark session that appends one row to an Iceberg table; the two take turns.
"""

from __future__ import annotations

import time
import uuid

from benchmarks import load
from benchmarks.processes import a_program, running_product, scratch_folder, settings_in
from benchmarks.report import Machine, Report, median, percentile, say
from frazil.client import Client

GOAL_P50_S = 0.6
GOAL_P99_S = 1.5
WARM_UPS = 10
TABLE = "bench"


def run(*, events: int = 100, rounds: int = 4) -> Report:
    machine = Machine.now()
    with (
        scratch_folder() as folder,
        running_product(settings_in(folder)) as client,
        a_program("bare_spark", folder) as bare,
    ):
        client.create_table(**load.declaration(TABLE))
        bare.tell()
        ours: list[float] = []
        theirs: list[float] = []
        for number in range(rounds + 1):
            count = WARM_UPS if number == 0 else max(1, events // rounds)
            mine = [_visible_after(client) for _ in range(count)]
            plain = bare.ask({"appends": count})["seconds"]
            name = "warm-up" if number == 0 else f"round {number} of {rounds}"
            say(f"{name}: visible after {median(mine):.3f} s, a bare append takes {median(plain):.3f} s")
            if number:
                ours += mine
                theirs += plain
        commits = [entry for entry in client.journal(limit=len(ours)) if entry.get("kind") == "commit"]
    p50, p99 = percentile(ours, 0.5), percentile(ours, 0.99)
    return Report(
        bench="freshness",
        figure={
            "p50_s": p50,
            "p99_s": p99,
            "max_s": max(ours),
            "events": len(ours),
            "commit_p50_s": median([float(entry["seconds"]) for entry in commits]) if commits else None,
        },
        control={
            "what": "a warm Spark session appending one row to an Iceberg table",
            "p50_s": percentile(theirs, 0.5),
            "p99_s": percentile(theirs, 0.99),
        },
        ratio=p50 / percentile(theirs, 0.5),
        goal=f"p50_s <= {GOAL_P50_S} and p99_s <= {GOAL_P99_S}",
        reached=p50 <= GOAL_P50_S and p99 <= GOAL_P99_S,
        machine=machine,
    )


def _visible_after(client: Client) -> float:
    body = load.ndjson(uuid.uuid4().hex[:16], 0, 1)
    started = time.perf_counter()
    client.publish_body(TABLE, body, "application/x-ndjson", wait=True, timeout_s=60)
    return time.perf_counter() - started
