"""Resources that the processes of the product hold, counted from outside and by the gateway's own metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.flow.product import Product, command_of
from tests.processes import children

SLACK: Mapping[str, int] = {
    "files": 12,  # connections of those who ask, files of a commit or a query that runs
    "threads": 12,  # thread pools grow as they are used, to their limits
    "tasks": 12,  # of the requests that are being served
    "processes": 1,  # a query worker that is being replaced
    "requests": 6,  # one for each client, and our own
    "waits": 3,
    "bytes": 1 << 20,
    "jvm files": 48,  # each stage of a commit has some open
    "jvm threads": 24,
    "bus files": 24,  # a stream has a file for each block of messages
}
"""How much more than before is no growth, by the kind of what is counted, or by the part and the kind."""
MEMORY_TIMES, MEMORY_BYTES = 1.1, 96 << 20
"""So much may the memory of the gateway grow from the first to the second time of the same attack: what allocators keep
in pieces is not the same each time."""

Held = dict[tuple[str, str], int]


def held(product: Product) -> Held:
    """How much there is, by part and kind."""
    gateway = product.part("gateway")
    server = fork_server(product)
    workers = children(server)
    found: Held = {("query workers", "processes"): len(workers)}
    for name, pids in {
        "gateway": [gateway],
        "fork server": [server],
        "query workers": workers,
        "pipeline": [product.part("pipeline")],
        "jvm": [product.part("jvm")],
        "bus": [product.part("bus")],
    }.items():
        found[name, "files"] = max((_entries(pid, "fd") for pid in pids), default=0)
        found[name, "threads"] = max((_entries(pid, "task") for pid in pids), default=0)
    metrics = dict(_metrics(product))
    found["gateway", "tasks"] = int(metrics["frazil_gateway_tasks"])
    for kind in ("requests", "waits", "bytes"):
        found["in flight", kind] = int(metrics[f'frazil_in_flight{{kind="{kind}"}}'])
    return found


def most_held(product: Product, looks: int = 5) -> Held:
    """The most of several looks: what is counted goes up and down as requests come."""
    every = [held(product) for _ in range(looks)]
    return {key: max(one[key] for one in every) for key in every[0]}


def grown(before: Held, now: Held) -> dict[str, str]:
    """What there is more of than before, beyond the slack."""
    return {
        f"{part} {kind}": f"{before[part, kind]} -> {count}"
        for (part, kind), count in now.items()
        if count > before[part, kind] + SLACK.get(f"{part} {kind}", SLACK[kind])
    }


def memory_bytes(pid: int) -> int:
    (line,) = re.findall(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line) << 10


def fork_server(product: Product) -> int:
    return next(pid for pid in children(product.part("gateway")) if "fork_server" in command_of(pid))


def _entries(pid: int, folder: str) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/{folder}").iterdir()))
    except OSError:
        return 0


def _metrics(product: Product) -> Iterator[tuple[str, float]]:
    for line in product.ask("GET", "/metrics").text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            yield name, float(value)
