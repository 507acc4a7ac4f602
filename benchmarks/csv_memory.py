"""`bench csv --memory`: the most that the whole embedded group holds in memory while it loads a large CSV file.

Measured as PSS over all processes of `frazil up`, several times a second. The control is a file of a tenth of the size:
memory that does not grow with the file is about the same for both.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import csv_load
from benchmarks.memory import group_bytes
from benchmarks.processes import running_product, scratch_folder, settings_in
from benchmarks.report import Machine, Report, say
from frazil.client import Client
from frazil.errors import FrazilError, Unavailable
from frazil.runtime import DataDir

GOAL_BYTES = 2_500_000_000
GOAL_FILE_BYTES = 5_000_000_000
"""A smaller file says nothing about the goal."""
_LOOK_SECONDS = 0.25
_LOAD_SECONDS = 3600.0


@dataclass
class Peak:
    """The most that was seen, and of which parts it was made."""

    bytes: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    looks: int = 0

    def look(self, data: DataDir) -> None:
        parts = group_bytes(data)
        self.looks += 1
        if (total := sum(parts.values())) > self.bytes:
            self.bytes, self.parts = total, parts


def run(*, gigabytes: float = 5.0) -> Report:
    machine = Machine.now()
    size = int(gigabytes * 1e9)
    with scratch_folder() as folder:
        _check_room(folder, size)
        settings = settings_in(folder)
        with running_product(settings) as client:
            data = DataDir(settings.data_dir)
            small, _ = _load(client, data, folder, "small", size // 10)
            large, seconds = _load(client, data, folder, "large", size)
    return Report(
        bench="csv",
        figure={
            "bytes": large.bytes,
            "parts": large.parts,
            "file_bytes": size,
            "mb_per_s": size / 1e6 / seconds,
            "seconds": seconds,
            "looks": large.looks,
        },
        control={"what": "a file of a tenth of the size", "bytes": small.bytes, "file_bytes": size // 10},
        ratio=large.bytes / small.bytes,
        goal=f"bytes <= {GOAL_BYTES} for a file of {GOAL_FILE_BYTES} bytes or more",
        reached=large.bytes <= GOAL_BYTES and size >= GOAL_FILE_BYTES,
        machine=machine,
    )


def _load(client: Client, data: DataDir, folder: Path, table: str, size: int) -> tuple[Peak, float]:
    """Load a new file of this size through the product; the peak meanwhile, and the seconds."""
    made = csv_load.write_large(folder / f"{table}.csv", size)
    say(f"{made.size / 1e9:.2f} GB are written")
    began = time.monotonic()
    with watched(data) as peak:
        job = client.load_csv(table, [made.path], columns=dict(csv_load.COLUMNS))
        done = client.wait_for_job(job["id"], timeout_s=_LOAD_SECONDS)
    seconds = time.monotonic() - began
    if (done["rows_out"], done["quarantined"]) != (made.rows, made.bad):
        raise FrazilError(f"{made.rows} records are good and {made.bad} are bad; the load tells otherwise: {done}")
    say(f"loaded in {seconds:.0f} s, at most {peak.bytes / 1e6:,.0f} MB")
    made.path.unlink()
    return peak, seconds


@contextmanager
def watched(data: DataDir) -> Iterator[Peak]:
    """Look again and again while the block runs."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            peak.look(data)

    watcher = threading.Thread(target=watch, name="memory", daemon=True)
    peak.look(data)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def _check_room(folder: Path, size: int) -> None:
    """The file, its rows as Parquet, and some air."""
    needed, free = 2 * size, shutil.disk_usage(folder).free
    if free < needed:
        raise Unavailable(
            f"a file of {size / 1e9:g} GB and its table need {needed / 1e9:g} GB of disk, {free / 1e9:.1f} GB are free",
            hint="set TMPDIR to a larger disk, or ask for less with --gigabytes",
        )
