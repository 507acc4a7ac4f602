"""Host of a trial: figures of another one are not compared with these."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path


def machine() -> str:
    """Its processor, cores and memory as JSON, equal for equal machines."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    facts = {"cpu": _cpu(), "cores": os.cpu_count(), "memory_gb": round(gigabytes), "system": platform.system()}
    return json.dumps(facts)


def engines() -> str:
    """Versions of all that takes part, as JSON."""
    found = {name: metadata.version(name) for name in ("faiss-cpu", "duckdb", "numpy")}
    return json.dumps({**found, "python": platform.python_version()})


def resident_bytes() -> int:
    """What this process has in memory now, mapped files that were read included."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """The most that it had."""
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()
