"""`bench upkeep`: how long a producer waits for a receipt while tables are compacted, against the same without.

The whole product runs as `frazil up` starts it. One client publishes small batches without a pause, quiet and
compaction taking turns. What is compacted is the table that it publishes to, whose commits go on meanwhile, and a large
one beside it that is sorted as a whole, so that Spark has work for as long as it is measured.
"""

from __future__ import annotations

import threading
import time
import uuid

from benchmarks import load
from benchmarks.processes import running_product, scratch_folder, settings_in
from benchmarks.report import Machine, Report, percentile, say
from frazil.client import Client
from frazil.errors import FrazilError

GOAL = 2.0
BUSY, LARGE = "bench", "large"
_BATCH = 100


def run(*, rows: int = 1_000_000, files: int = 20, seconds: float = 20.0, rounds: int = 3) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder, running_product(settings_in(folder)) as client:
        for name in (BUSY, LARGE):
            client.create_table(**load.declaration(name))
        for number in range(files):
            body = load.ndjson(f"{number:x}{uuid.uuid4().hex[:8]}", 0, max(1, rows // files))
            client.publish_body(LARGE, body, "application/x-ndjson", wait=True, timeout_s=120)
        say(f"{LARGE} has {rows:,} rows in {client.table_health(LARGE)['files']} files")
        _published(client, 5.0)
        quiet: list[float] = []
        disturbed: list[float] = []
        compactions = {BUSY: 0, LARGE: 0}
        lost = 0
        for number in range(1, rounds + 1):
            before = _published(client, seconds)
            over = threading.Event()
            failures: list[FrazilError] = []
            keeper = threading.Thread(target=_compact, args=(client, over, compactions, failures))
            keeper.start()
            during = _published(client, seconds)
            over.set()
            keeper.join(600)
            lost += len(failures)
            quiet += before
            disturbed += during
            say(
                f"round {number} of {rounds}: p99 {percentile(before, 0.99) * 1000:.1f} ms quiet, "
                f"{percentile(during, 0.99) * 1000:.1f} ms during compaction"
            )
    ratio = percentile(disturbed, 0.99) / percentile(quiet, 0.99)
    return Report(
        bench="upkeep",
        figure={
            "receipt_p50_ms": percentile(disturbed, 0.5) * 1000,
            "receipt_p99_ms": percentile(disturbed, 0.99) * 1000,
            "requests": len(disturbed),
            "compactions_of_the_table_itself": compactions[BUSY],
            "compactions_beside_it": compactions[LARGE],
            "compactions_lost": lost,
        },
        control={
            "what": "the same client and table without compaction",
            "receipt_p50_ms": percentile(quiet, 0.5) * 1000,
            "receipt_p99_ms": percentile(quiet, 0.99) * 1000,
        },
        ratio=ratio,
        goal=f"ratio <= {GOAL:g}",
        reached=ratio <= GOAL and compactions[BUSY] > 0,
        machine=machine,
    )


def _published(client: Client, seconds: float) -> list[float]:
    """Seconds until each receipt."""
    waited = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        body = load.ndjson(uuid.uuid4().hex[:16], 0, _BATCH)
        started = time.perf_counter()
        client.publish_body(BUSY, body, "application/x-ndjson")
        waited.append(time.perf_counter() - started)
    return waited


def _compact(client: Client, over: threading.Event, done: dict[str, int], failures: list[FrazilError]) -> None:
    while not over.is_set():
        for table, sort in ((BUSY, []), (LARGE, ["_id"])):
            try:
                if client.maintain(table, "compact", sort=sort, timeout_s=300)["steps"]:
                    done[table] += 1
            except FrazilError as error:
                failures.append(error)
            if over.is_set():
                return
