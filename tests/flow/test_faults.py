"""Faults of each process, with health asked throughout: stopped for a while, and killed.

Health must not say ok while receipts or answers are not possible, and must say ok again soon after everything works
again. What is possible is measured from outside: by a producer, by a query, and by a write that waits for its commit.

The times are those of a machine with a processor for whoever has something to do. Where more processes want to run than
there are processors, everything comes later by that ratio: it is measured in the same run, and the times stretch by it.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.flow.product import Product, command_of, eventually, new_folder, running
from tests.flow.steady_clients import SteadyClient, publisher, querier
from tests.processes import children, is_running, signal_to

pytestmark = [pytest.mark.slow, pytest.mark.spark]
FAULT_SECONDS = 9.0
NOTICED_SECONDS = {"receipts": 4.0, "answers": 4.0, "commits": 7.0}
"""How long health may take to notice: a look at the bus takes up to 2 s and is kept for one; a pipeline that is silent
for 4 s while events wait is told a second later."""
SETTLED_SECONDS = {"receipts": 2.0, "answers": 3.0, "commits": 5.0}
"""How long before the end of an outage everything may work already: the last request that hung ends a moment after the
fault, with the first query of a worker that has just started, or with the first commit: seconds on a busy machine."""
RECOVERED_SECONDS = 5.0
HANGS_SECONDS = 3.0
"""A request that takes longer than this counts as not possible."""


def _runnable() -> int:
    """How many processes of this machine want to run now."""
    (line,) = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("procs_running")]
    return int(line.split()[1])


@dataclass
class HealthLog:
    """What `GET /v1/health` said, several times a second; None where there was no answer within a second."""

    url: str
    said: list[tuple[float, str | None]] = field(default_factory=list)
    runnable: list[int] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        with httpx.Client(timeout=3, trust_env=False) as http:
            while not self._stopping.wait(0.2):
                status: str | None = None
                try:
                    status = str(http.get(f"{self.url}/v1/health").json()["status"])
                except httpx.HTTPError:
                    status = None
                self.said.append((time.monotonic(), status))
                self.runnable.append(_runnable())

    def between(self, began: float, ended: float) -> list[str | None]:
        return [status for at, status in list(self.said) if began <= at < ended]

    def stretch(self) -> float:
        """How much later everything comes on this machine in this run; 1 where processors were free."""
        return max(1.0, statistics.fmean(self.runnable) / (os.cpu_count() or 1))

    def is_ok(self) -> bool:
        return bool(self.said) and self.said[-1][1] == "ok"


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    with new_folder("faults") as folder, running(Product(folder / "data")) as product:
        product.up()
        product.declare("visits", {"number": "long"})
        product.until_status("ok")
        yield product


def _fork_server(product: Product) -> int:
    return next(pid for pid in children(product.part("gateway")) if "fork_server" in command_of(pid))


PROCESSES: dict[str, Callable[[Product], int]] = {
    "bus": lambda product: product.part("bus"),
    "gateway": lambda product: product.part("gateway"),
    "pipeline": lambda product: product.part("pipeline"),
    "jvm": lambda product: product.part("jvm"),
    "fork server of query workers": _fork_server,
    "query worker": lambda product: children(_fork_server(product))[0],
}


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("fault", ["stop", "kill"])
def test_health_tells_the_truth_during_a_fault(product: Product, name: str, fault: str) -> None:
    clients = [
        publisher(product.url, product.token, "visits", name="receipts"),
        querier(product.url, product.token, "visits", name="answers"),
        querier(product.url, product.token, "visits", name="answers"),
        publisher(product.url, product.token, "visits", name="commits", wait="?wait=visible&timeout_s=10"),
    ]
    for client in clients:
        client.timeout_seconds = 12.0
    health = HealthLog(product.url)
    watchers: list[SteadyClient | HealthLog] = [*clients, health]
    for watcher in watchers:
        watcher.start()
    try:
        eventually(health.is_ok, what="health before the fault")
        began = time.monotonic()
        pid = PROCESSES[name](product)
        signal_to(pid, signal.SIGSTOP if fault == "stop" else signal.SIGKILL)
        time.sleep(FAULT_SECONDS)
        if fault == "stop":
            signal_to(pid, signal.SIGCONT)
        else:
            assert not is_running(pid)
        ended = time.monotonic()
        possible = _possible_again(clients, ended)
        eventually(health.is_ok, what=f"health after {fault} of {name}")
        recovered = time.monotonic()
        time.sleep(2)
    finally:
        for watcher in watchers:
            watcher.stop()
    stretch = health.stretch()
    for name, (start, end) in _outages(clients, began, recovered):
        lied = health.between(start + stretch * NOTICED_SECONDS[name], end - stretch * SETTLED_SECONDS[name])
        outage = f"{name} were not possible from {start - began:.1f} to {end - began:.1f} s"
        assert "ok" not in lied, f"{outage}, and ok (times {stretch:.1f})"
    late = recovered - possible
    assert late <= stretch * RECOVERED_SECONDS, f"health took {late:.1f} s to say ok again (times {stretch:.1f})"
    assert set(health.between(recovered, time.monotonic())) == {"ok"}


def _possible_again(clients: Sequence[SteadyClient], ended: float) -> float:
    """When every client had an answer in time that it asked for after the fault."""

    def works(client: SteadyClient) -> bool:
        if not client.samples:
            return False
        last = client.samples[-1]
        return last.began >= ended and last.error is None and last.seconds < HANGS_SECONDS

    eventually(lambda: all(works(client) for client in clients), what="receipts, answers and commits after the fault")
    return time.monotonic()


def _outages(clients: Sequence[SteadyClient], began: float, ended: float) -> Iterator[tuple[str, tuple[float, float]]]:
    """When something was possible for none of the clients that tried: one of them may have met a worker that hangs."""
    for name in NOTICED_SECONDS:
        first, *others = [list(_failures(client, began, ended)) for client in clients if client.name == name]
        for outage in first:
            overlaps = [outage]
            for other in others:
                overlaps = [(max(a, c), min(b, d)) for a, b in overlaps for c, d in other]
            yield from ((name, (start, end)) for start, end in overlaps if start < end)


def _failures(client: SteadyClient, began: float, ended: float) -> Iterator[tuple[float, float]]:
    """From the begin of a request that failed or hung until the end of the last such request in a row."""
    start = end = None
    for sample in client.between(began, ended):
        if sample.error or sample.seconds > HANGS_SECONDS:
            start = sample.began if start is None else start
            end = sample.began + sample.seconds
        elif start is not None and end is not None:
            yield start, end
            start = end = None
    if start is not None and end is not None:
        yield start, end
