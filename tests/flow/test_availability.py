"""Availability: hostile clients attack one after the other while three well-behaved ones are measured.

Nobody but the attacker may notice: no error for the others, a 99th percentile within five times that of the quiet
moments of the same run, everything as before two seconds after the attack, and nothing left in the gateway.

An attack takes 6 seconds, and 10 in `make soak`. A quiet moment lasts until each client was answered several times.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frazil.events import Mark, Token
from tests.flow.hostile_clients import ATTACKS
from tests.flow.product import ROOT, Product, eventually, new_folder, running
from tests.flow.steady_clients import Sample, SteadyClient, publisher, querier, searcher

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ATTACK_SECONDS = 6.0
FULL_ATTACK_SECONDS = 10.0
RECOVERY_SECONDS = 2.0
QUIET_SECONDS = 2.0
FULL_QUIET_SECONDS = 4.0
QUIET_SAMPLES = 8
"""So many answers to each client make a quiet moment: on a busy machine it takes longer."""
MOST_TIMES_QUIET = 5.0
FAR_POSITION = 1 << 50
TABLES = {"plain": "attacked", "daily": "attacked_daily", "by_city": "attacked_by_city"}


@dataclass(frozen=True)
class Resources:
    """What the gateway holds, counted from outside."""

    files: int
    tasks: int
    memory_bytes: int
    in_flight: int


@dataclass(frozen=True)
class Period:
    began: float
    ended: float


@dataclass(frozen=True)
class Phase:
    """An attack, and the quiet moment that begins two seconds after it."""

    attack: str
    during: Period
    after: Period
    answers: dict[str, int]


@dataclass(frozen=True)
class Attacker:
    """Attacks one place, in turns with quiet moments of the clients who share it."""

    clients: Sequence[SteadyClient]
    place: dict[str, Any]
    attack_seconds: float
    quiet_seconds: float

    def attack(self, name: str) -> Phase:
        began = time.monotonic()
        words = [sys.executable, "-m", "tests.flow.hostile_clients", name, json.dumps(self.place)]
        done = subprocess.run(
            [*words, str(self.attack_seconds)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        during = Period(began, time.monotonic())
        time.sleep(RECOVERY_SECONDS)
        return Phase(name, during, self.quiet(), json.loads(done.stdout))

    def quiet(self) -> Period:
        """A moment without an attack, long enough for some answers to each client."""
        began = time.monotonic()
        time.sleep(self.quiet_seconds)
        eventually(
            lambda: all(len(client.between(began, math.inf)) >= QUIET_SAMPLES for client in self.clients),
            what="answers without an attack",
        )
        return Period(began, time.monotonic())


def test_nobody_but_the_attacker_notices_an_attack(full_length: bool) -> None:
    with new_folder("attacks") as folder, running(Product(folder / "data")) as product:
        product.up()
        clients, place = _prepared(product)
        lengths = (FULL_ATTACK_SECONDS, FULL_QUIET_SECONDS) if full_length else (ATTACK_SECONDS, QUIET_SECONDS)
        attacker = Attacker(clients, place, *lengths)
        for client in clients:
            client.start()
        try:
            first = attacker.quiet()
            before = _resources(product)
            phases = [attacker.attack(name) for name in ATTACKS]
            quiet = [first, *(phase.after for phase in phases)]
            slowed = _slowed(clients, phases, quiet)
            if slowed:
                # The machine may have been busy with something else in that moment: an attack that harms does so twice.
                again = [attacker.attack(name) for name in slowed]
                slowed = _slowed(clients, again, [*quiet, *(phase.after for phase in again)])
                phases += again
        finally:
            for client in clients:
                client.stop()
        print(_summary(clients, phases, quiet, before, _resources(product)))
        assert _errors(clients) == []
        assert slowed == {}
        _check_nothing_is_left(product, before)
        _check_every_event_is_a_row(product, clients[0])


def _prepared(product: Product) -> tuple[list[SteadyClient], dict[str, Any]]:
    product.declare("visits", {"number": "long"})
    product.declare("notes", {"body": "string"}, text=["body"])
    product.declare(TABLES["plain"], {"number": "long"})
    product.declare(TABLES["daily"], {"at": "timestamp"}, partition=["day(at)"])
    product.declare(TABLES["by_city"], {"city": "string"}, partition=["city"])
    scenes = ("river ice", "a frozen lake", "snow on the road", "a harbour in winter")
    events = [{"id": f"n-{number}", "data": {"body": f"{scenes[number % 4]} {number}"}} for number in range(200)]
    assert product.ask("POST", "/v1/tables/notes/events?wait=visible&timeout_s=120", {"events": events}).is_success
    receipt = product.ask("POST", "/v1/tables/attacked/events", {"events": [{"id": "1", "data": {"number": 1}}]})
    ((table, mark),) = Token.parse(receipt.json()["token"]).marks.items()
    clients = [
        publisher(product.url, _secret(product, "producer", "ingest:visits"), "visits"),
        querier(product.url, _secret(product, "analyst", "sql", "read:visits"), "visits"),
        searcher(product.url, _secret(product, "reader", "sql", "read:notes"), "notes"),
    ]
    every = [scope for table in TABLES.values() for scope in (f"ingest:{table}", f"read:{table}")]
    place = {
        "host": "127.0.0.1",
        "port": product.port,
        "secret": _secret(product, "attacker", "sql", *every),
        "far_token": str(Token({table: Mark(mark.stream, FAR_POSITION)})),
        "tables": TABLES,
    }
    product.until_status("ok")
    return clients, place


def _secret(product: Product, name: str, *scopes: str) -> str:
    declared = {"name": name, "grants": [{"scope": scope} for scope in scopes]}
    answer = product.ask("POST", "/v1/tokens", declared)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def _errors(clients: Sequence[SteadyClient]) -> list[str]:
    return [f"{client.name}: {sample.error}" for client in clients for sample in client.samples if sample.error][:20]


def _slowed(clients: Sequence[SteadyClient], phases: Sequence[Phase], quiet: Sequence[Period]) -> dict[str, list[str]]:
    """The attacks that others noticed, and how."""
    found: dict[str, list[str]] = {}
    for client in clients:
        usual = _percentile(_of(client, quiet), 0.99)
        for phase in phases:
            during = _percentile(_of(client, [phase.during]), 0.99)
            if during > MOST_TIMES_QUIET * usual:
                found.setdefault(phase.attack, []).append(f"{client.name}: p99 {during:.3f} s, quiet {usual:.3f} s")
            after = _percentile(_of(client, [phase.after]), 0.5)
            if after > usual:
                found.setdefault(phase.attack, []).append(f"{client.name}: p50 {after:.3f} s two seconds later")
    return found


def _of(client: SteadyClient, periods: Sequence[Period]) -> list[Sample]:
    return [sample for period in periods for sample in client.between(period.began, period.ended)]


def _percentile(samples: Sequence[Sample], part: float) -> float:
    times = sorted(sample.seconds for sample in samples)
    assert times, "nothing was asked in this time: a request before it took all of it"
    return times[min(len(times) - 1, int(part * len(times)))]


def _resources(product: Product) -> Resources:
    pid = product.part("gateway")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    metrics = dict(_metrics(product))
    return Resources(
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        tasks=int(metrics["frazil_gateway_tasks"]),
        memory_bytes=pages * 4096,
        in_flight=int(metrics["frazil_http_requests_in_flight"]),
    )


def _metrics(product: Product) -> Iterator[tuple[str, float]]:
    for line in product.ask("GET", "/metrics").text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            yield name, float(value)


def _check_nothing_is_left(product: Product, before: Resources) -> None:
    """Files, tasks and requests as before (its own request and connection apart), memory within what caches take."""

    def as_before() -> bool:
        now = _resources(product)
        return now.files <= before.files + 8 and now.tasks <= before.tasks + 8 and now.in_flight <= 1

    eventually(as_before, what=f"as few files and tasks as {before}", seconds=30, every=0.5)
    assert _resources(product).memory_bytes <= 1.5 * before.memory_bytes + (256 << 20)
    uploads = product.data / "uploads"
    eventually(lambda: not uploads.exists() or not list(uploads.iterdir()), what="no upload left", every=0.5)


def _check_every_event_is_a_row(product: Product, producer: SteadyClient) -> None:
    product.until_drained("visits")
    answer = product.ask("POST", "/v1/query", {"sql": "SELECT count(*), count(DISTINCT _id) FROM visits"}).json()
    assert answer["rows"] == [[5 * len(producer.samples)] * 2]


def _summary(
    clients: Sequence[SteadyClient],
    phases: Sequence[Phase],
    quiet: Sequence[Period],
    before: Resources,
    after: Resources,
) -> str:
    lines = [f"{'':20}" + "".join(f"{client.name + ' p99 (n)':>24}" for client in clients)]
    for name, periods in [("quiet", quiet), *((phase.attack, [phase.during]) for phase in phases)]:
        cells = []
        for client in clients:
            samples = _of(client, periods)
            times = _percentile(samples, 0.99) / _percentile(_of(client, quiet), 0.99) if samples else float("inf")
            slowest = f"{_percentile(samples, 0.99) * 1000:.0f} ms" if samples else "none"
            cells.append(f"{slowest} ({len(samples)}) x{times:.1f}")
        lines.append(f"{name:20}" + "".join(f"{cell:>24}" for cell in cells))
    lines += [f"{phase.attack}: {phase.answers}" for phase in phases]
    return "\n".join([*lines, f"before {before}", f"after  {after}"])
