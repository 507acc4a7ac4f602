"""Faults of each process, stopped and killed, with health asked throughout.

Health must not say ok while receipts, answers or commits are not possible, and must say ok soon after everything works
again. What is possible is measured from outside, by five clients: one that publishes, two that query (one of them may
have met a worker that hangs), one that searches, and one that waits until its rows are visible. Each gives up a request
after its patience; what fails, or takes longer, was not possible. `BREAKS` says for each process who must fail.

*Stopped*: the process stands still until each who must fail was seen failing since, and health does not say ok; and for
five seconds more. Once it has noticed, no answer of health may be ok until the end of the fault.

*Killed*: the product starts it again, so the outage has an end of its own. While a client fails again and again without
a success between, no answer of health may be ok that is asked for and told between two of these failures, once it had
the time to notice.

Health notices within `NOTICED_SECONDS`, and says ok again within five seconds after the moment at which each client has
been served again. These times are multiplied by the factor by which the machine was
slower than before the fault; a control server measures it. The rest are bounds against hanging.

The patience of the clients is an absolute time: beside another suite, commits may take longer than it without a fault.
So this is a part of `make soak`, which runs one test at a time; `make test` has the shorter tests/flow/test_faults.py.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from tests.flow.control_server import control_server
from tests.flow.health_log import HealthLog
from tests.flow.held_resources import fork_server
from tests.flow.product import Product, eventually, new_folder, running
from tests.flow.steady_clients import SteadyClient, control, publisher, querier, searcher, slowdown
from tests.processes import children, go_on, is_running, signal_to, stop

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.spark]
PATIENCE_SECONDS = 5.0
"""What takes longer is not possible, and clients give it up."""
NOTICED_SECONDS = {"receipts": 5.0, "answers": 5.0, "searches": 5.0, "commits": 8.0}
"""How long health may take to notice what a client notices: a look at the bus takes up to 2 s and is kept for one; a
pipeline that is silent for 4 s while events wait is told a second later."""
HELD_SECONDS = 5.0
RECOVERED_SECONDS = 5.0
USUAL_ANSWERS = 30

Kind = str
EVERYTHING = ("receipts", "answers", "searches", "commits")


@dataclass(frozen=True)
class Process:
    """Processes that are hit at once, and what is not possible without them."""

    pids: Callable[[Product], Sequence[int]]
    stopped: tuple[Kind, ...]
    killed: tuple[Kind, ...]
    """Who must be seen failing; empty where the product may be quick enough, so that nobody is."""


def _part(name: str) -> Callable[[Product], Sequence[int]]:
    return lambda product: [product.part(name)]


BREAKS = {
    "bus": Process(_part("bus"), EVERYTHING, ()),
    "gateway": Process(_part("gateway"), EVERYTHING, EVERYTHING),
    "pipeline": Process(_part("pipeline"), ("commits",), ("commits",)),
    "jvm": Process(_part("jvm"), ("commits",), ("commits",)),
    "fork server": Process(lambda product: [fork_server(product)], (), ()),
    "query worker": Process(lambda product: children(fork_server(product))[:1], (), ()),
}


@dataclass
class Watched:
    """A product in use, and what its users and its health say."""

    product: Product
    clients: Sequence[SteadyClient]
    control: SteadyClient
    health: HealthLog
    began: float = 0.0
    ended: float = 0.0
    notes: list[str] = field(default_factory=list)

    def fails(self, kind: Kind) -> bool:
        """Whether each client of this kind has failed since the fault, or waits for longer than its patience."""
        return all(self._fails(client) for client in self.clients if client.name == kind)

    def _fails(self, client: SteadyClient) -> bool:
        asks_since = client.asks_since
        hangs = asks_since is not None and time.monotonic() - max(asks_since, self.began) > PATIENCE_SECONDS
        return hangs or any(sample.error for sample in client.begun_since(self.began))

    def served_again(self, kind: Kind) -> float | None:
        """When each client of this kind had an answer that it asked for after the fault and after its last failure."""
        firsts = []
        for client in self.clients:
            if client.name == kind:
                failures = [sample.ended for sample in client.begun_since(self.began) if sample.error]
                since = max([self.ended, *failures])
                firsts.append(next((sample.ended for sample in client.begun_since(since)), None))
        known = [first for first in firsts if first is not None]
        return max(known) if len(known) == len(firsts) else None

    def hold(self, breaks: Sequence[Kind]) -> None:
        """Return when the fault was felt by all who must feel it, and told, and has lasted for some time since."""
        if breaks:
            eventually(lambda: all(self.fails(kind) for kind in breaks), what=f"failures of {breaks}", seconds=120)
            eventually(lambda: self.health.first(self.began, ok=False), what="health that is not ok", seconds=60)
        time.sleep(HELD_SECONDS)

    def until_served(self) -> float:
        eventually(
            lambda: all(self.served_again(kind) for kind in EVERYTHING),
            what="receipts, answers, searches and commits after the fault",
        )
        return max(self.served_again(kind) or 0.0 for kind in EVERYTHING)

    def check_recovery(self, served: float) -> None:
        """Health is ok soon, and stays so."""
        telling = eventually(lambda: self.health.first(served, ok=True), what="health after the fault")
        time.sleep(1)
        factor = self._slowdown()
        late = telling.told - served if telling else 0.0
        assert late <= RECOVERED_SECONDS * factor, f"health was ok {late:.1f} s late, machine x{factor:.1f}"
        since = [one.status for one in self.health.between(telling.told if telling else 0.0, time.monotonic())]
        assert since and set(since) == {"ok"}, since

    def _slowdown(self) -> float:
        samples = list(self.control.samples)
        return slowdown(
            [one for one in samples if one.ended < self.began], [one for one in samples if one.ended >= self.began]
        )

    def check_stopped(self, breaks: Sequence[Kind]) -> None:
        """Noticed in time, and not ok from then until the end of the fault."""
        if not breaks:
            return
        factor = self._slowdown()
        latest = self.began + factor * min(NOTICED_SECONDS[kind] for kind in breaks)
        telling = self.health.first(self.began, ok=False)
        assert telling is not None
        noticed = telling.told - self.began
        words = f"{breaks} were not possible, health noticed it after {noticed:.1f} s, machine x{factor:.1f}"
        assert telling.told <= latest, words
        said = [one.status for one in self.health.between(telling.asked, self.ended)]
        assert len(said) > 1, f"{words}; and was not asked again"
        self.notes.append(f"{words}; then {len(said)} answers in {self.ended - telling.told:.1f} s")
        assert "ok" not in said, f"{words}; and then said {said}"

    def check_killed(self, breaks: Sequence[Kind], served: float) -> None:
        """Noticed, and not ok while somebody is seen failing."""
        factor = self._slowdown()
        if breaks:
            said = [one.status for one in self.health.between(self.began, served)]
            assert said and set(said) != {"ok"}, f"{breaks} were not possible, and health said {said}"
        for kind in EVERYTHING:
            for began, ended in self._outages(kind):
                noticed = max(began, self.began + NOTICED_SECONDS[kind] * factor)
                said = [one.status for one in self.health.between(noticed, ended)]
                words = f"{kind} were not possible from {began - self.began:.1f} to {ended - self.began:.1f} s"
                self.notes.append(f"{words}: {len(said)} answers of health")
                assert "ok" not in said, f"{words}, and health said {said}, machine x{factor:.1f}"

    def _outages(self, kind: Kind) -> Iterator[tuple[float, float]]:
        """From the end of the first failure of a row to the begin of its last, where all clients of the kind failed."""
        rows = [list(_rows(client, self.began)) for client in self.clients if client.name == kind]
        overlaps = rows[0]
        for others in rows[1:]:
            overlaps = [(max(a, c), min(b, d)) for a, b in overlaps for c, d in others]
        yield from ((began, ended) for began, ended in overlaps if began < ended)


def _rows(client: SteadyClient, since: float) -> Iterator[tuple[float, float]]:
    row: list[tuple[float, float]] = []
    for sample in [*client.begun_since(since), None]:
        if sample is not None and sample.error:
            row.append((sample.began, sample.ended))
        elif row:
            yield row[0][1], row[-1][0]
            row = []


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    with new_folder("faults") as folder, running(Product(folder / "data")) as product:
        product.up()
        product.declare("visits", {"number": "long"})
        product.declare("notes", {"body": "string"}, text=["body"])
        events = [{"id": f"n-{number}", "data": {"body": f"river ice, snow {number}"}} for number in range(50)]
        assert product.ask("POST", "/v1/tables/notes/events?wait=visible&timeout_s=120", {"events": events}).is_success
        product.until_status("ok")
        yield product


@pytest.fixture(scope="module")
def control_url() -> Iterator[str]:
    with control_server() as url:
        yield url


@contextmanager
def _watched(product: Product, control_url: str) -> Iterator[Watched]:
    """Everybody is served, and health is ok."""
    wait = f"?wait=visible&timeout_s={PATIENCE_SECONDS:g}"
    clients = [
        publisher(product.url, product.token, "visits", name="receipts"),
        querier(product.url, product.token, "visits", name="answers"),
        querier(product.url, product.token, "visits", name="answers"),
        searcher(product.url, product.token, "notes", name="searches"),
        publisher(product.url, product.token, "visits", name="commits", wait=wait),
    ]
    for client in clients:
        client.timeout_seconds = PATIENCE_SECONDS
    watched = Watched(product, clients, control(control_url), HealthLog(product.url))
    everybody: list[SteadyClient | HealthLog] = [*clients, watched.control, watched.health]
    for one in everybody:
        one.start()
    try:
        watched.until_served()
        now = time.monotonic()
        eventually(lambda: watched.health.first(now, ok=True), what="health before the fault")
        eventually(lambda: len(watched.control.samples) >= USUAL_ANSWERS, what="answers of the control")
        yield watched
        print("\n".join(watched.notes))
    finally:
        for one in everybody:
            one.stop()


def stopped(product: Product, control_url: str, process: Process) -> None:
    with _watched(product, control_url) as watched:
        pids = process.pids(product)
        watched.began = time.monotonic()
        try:
            for pid in pids:
                stop(pid)
            watched.hold(process.stopped)
            watched.ended = time.monotonic()
        finally:
            for pid in pids:
                go_on(pid)
        served = watched.until_served()
        watched.check_stopped(process.stopped)
        watched.check_recovery(served)


def killed(product: Product, control_url: str, process: Process) -> None:
    with _watched(product, control_url) as watched:
        pids = process.pids(product)
        watched.began = time.monotonic()
        for pid in pids:
            signal_to(pid, signal.SIGKILL)
        eventually(lambda: not any(is_running(pid) for pid in pids), what="the end of what was killed")
        watched.ended = time.monotonic()
        eventually(lambda: all(watched.fails(kind) for kind in process.killed), what=f"failures of {process.killed}")
        served = watched.until_served()
        watched.check_killed(process.killed, served)
        watched.check_recovery(served)


@pytest.mark.parametrize("name", BREAKS)
def test_health_tells_the_truth_while_a_process_is_stopped(product: Product, control_url: str, name: str) -> None:
    stopped(product, control_url, BREAKS[name])


@pytest.mark.parametrize("name", BREAKS)
def test_health_tells_the_truth_after_a_process_is_killed(product: Product, control_url: str, name: str) -> None:
    killed(product, control_url, BREAKS[name])


def test_nobody_answers_for_a_supervisor_that_was_killed(product: Product, control_url: str) -> None:
    """All parts end with it, the gateway too: health has no answer, and comes with the next start."""
    with _watched(product, control_url) as watched:
        parts = [product.part(name) for name in ("bus", "gateway", "pipeline", "jvm")]
        watched.began = time.monotonic()
        product.kill("supervisor")
        eventually(lambda: not any(is_running(pid) for pid in parts), what="the end of all parts", seconds=120)
        watched.ended = gone = time.monotonic()
        watched.hold(EVERYTHING)
        said = [one.status for one in watched.health.between(gone, time.monotonic())]
        assert said and set(said) == {None}, said
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{product.url}/v1/health", trust_env=False)
        watched.ended = time.monotonic()
        product.up()
        served = watched.until_served()
        watched.check_stopped(EVERYTHING)
        watched.check_recovery(served)


def _all_query_workers(product: Product) -> Sequence[int]:
    return children(fork_server(product))


def test_query_workers_that_are_all_stopped_are_replaced(product: Product) -> None:
    """A query is given to none of them, so that answers go on."""
    product.until_status("ok")
    workers = _all_query_workers(product)
    for pid in workers:
        stop(pid)
    assert product.health()["parts"]["query"]["status"] != "ok"
    for _ in range(2 * len(workers)):
        assert product.ask("POST", "/v1/query", {"sql": "SELECT count(*) FROM visits"}).is_success
    eventually(lambda: not any(is_running(pid) for pid in workers), what="the end of stopped workers")
    product.until_status("ok")


def test_health_tells_the_truth_after_all_query_workers_are_killed(product: Product, control_url: str) -> None:
    killed(product, control_url, Process(_all_query_workers, (), ()))


def test_health_is_not_ok_while_a_gateway_reads_the_ids_of_recent_events(product: Product) -> None:
    """A gateway that was killed takes events when it knows the ids of the last day. Here it does not come to an end
    with that: in the place of the file that it reads is a pipe into which nobody writes."""
    product.declare("slow", {"number": "long"})
    path = "/v1/tables/slow/events?wait=visible&timeout_s=120"
    assert product.ask("POST", path, {"events": [{"id": "1", "data": {"number": 1}}]}).is_success
    (file,) = (product.data / "warehouse").glob("**/slow*/data/**/*.parquet")
    kept = file.with_suffix(".kept")
    file.rename(kept)
    os.mkfifo(file)
    health = HealthLog(product.url)
    try:
        product.kill("gateway")
        health.start()
        product.until_accepting()
        warming = [product.ask("POST", path, {"events": [{"id": "2", "data": {"number": 2}}]}) for _ in range(2)]
    finally:
        kept.rename(file)
        health.stop()
        product.kill("gateway")
    product.until_status("ok")
    assert [answer.json()["error"]["code"] for answer in warming] == ["warming"] * 2
    seconds = sum(answer.elapsed.total_seconds() for answer in warming)
    told = [one.status for one in health.between(health.tellings[-1].told - seconds, math.inf)]
    assert told and "ok" not in told, f"no event was taken for {seconds:.1f} s, and health said {told}"
