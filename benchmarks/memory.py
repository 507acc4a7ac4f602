"""`bench memory`: what the whole embedded group keeps in memory when it is idle after work, against Spark alone.

Measured as PSS: pages that processes share are counted once.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from benchmarks import load
from benchmarks.processes import a_program, running_product, scratch_folder, settings_in
from benchmarks.report import Machine, Report, say
from frazil.runtime import DataDir, of_run
from frazil.runtime.processes import PART

GOAL_BYTES = 1_500_000_000
TABLES = ("orders", "visits")


def run(*, events: int = 20_000, idle_seconds: float = 10.0) -> Report:
    machine = Machine.now()
    with scratch_folder() as folder:
        settings = settings_in(folder)
        with running_product(settings) as client:
            for table in TABLES:
                client.create_table(**load.declaration(table))
                for body in load.bodies(uuid.uuid4().hex[:16], events // len(TABLES)):
                    client.publish_body(table, body, "application/x-ndjson")
                client.publish_body(table, load.ndjson(uuid.uuid4().hex[:16], 0, 1), "application/x-ndjson", wait=True)
            say(f"{events:,} events are committed; idle for {idle_seconds:g} s")
            time.sleep(idle_seconds)
            parts = group_bytes(DataDir(settings.data_dir))
        with a_program("bare_spark", folder) as bare:
            bare.tell()
            bare.ask({"appends": 10})
            time.sleep(idle_seconds)
            plain = sum(pss(pid) for pid in family(bare.process.pid))
    total = sum(parts.values())
    return Report(
        bench="memory",
        figure={"bytes": total, "parts": parts, "events": events},
        control={"what": "a Spark session alone, its Python and its JVM, after ten appends", "bytes": plain},
        ratio=total / plain,
        goal=f"bytes <= {GOAL_BYTES}",
        reached=total <= GOAL_BYTES,
        machine=machine,
    )


def group_bytes(data: DataDir) -> dict[str, int]:
    """Bytes by part of the group that runs on this directory; the JVM, which is most of it, apart from its Python."""
    running = data.supervisor()
    parts = {"supervisor": pss(int(running["pid"]))}
    for identity in of_run(str(running["run_id"])):
        environment = Path(f"/proc/{identity.pid}/environ").read_bytes().split(b"\0")
        prefix = f"{PART}=".encode()
        part = next((word[len(prefix) :].decode() for word in environment if word.startswith(prefix)), "supervisor")
        program = Path(f"/proc/{identity.pid}/comm").read_text().strip()
        name = f"{part} (java)" if program == "java" else part
        parts[name] = parts.get(name, 0) + pss(identity.pid)
    return parts


def pss(pid: int) -> int:
    """The process's share of memory; one that has ended has none, also where nobody has taken note of its end yet."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def family(pid: int) -> list[int]:
    """The process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(grandchild for child in children for grandchild in family(int(child)))]
