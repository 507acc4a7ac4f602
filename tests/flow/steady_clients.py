"""Well-behaved clients that go on throughout a test, each with a token of its own, and are measured.

One of them, the control, asks a server that is not the product. The machines that tests run on are shared: where the
control is answered twice as late as before, everything else may be, too. `slowdown` is that factor. So no test that
compares times needs an absolute one.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

PAUSE_SECONDS = 0.04


@dataclass(frozen=True)
class Sample:
    began: float
    seconds: float
    error: str | None

    @property
    def ended(self) -> float:
        return self.began + self.seconds


@dataclass
class SteadyClient:
    """Sends one request after the other; `samples` has each of them, in the order in which they ended."""

    name: str
    request: Callable[[int], httpx.Request]
    timeout_seconds: float = 30.0
    pause_seconds: float = PAUSE_SECONDS
    is_right: Callable[[httpx.Response], bool] = lambda response: response.is_success
    samples: list[Sample] = field(default_factory=list)
    asks_since: float | None = None
    """When the request began that has no answer yet."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The last request is over, and counted, when this returns."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self.timeout_seconds + 60)
            assert not self._thread.is_alive(), f"{self.name} does not end"

    def between(self, began: float, ended: float) -> list[Sample]:
        return [sample for sample in list(self.samples) if began <= sample.began < ended]

    def begun_since(self, moment: float) -> list[Sample]:
        return [sample for sample in list(self.samples) if sample.began >= moment]

    def ended_between(self, began: float, ended: float) -> list[Sample]:
        return [sample for sample in list(self.samples) if began <= sample.ended < ended]

    def _run(self) -> None:
        with httpx.Client(timeout=self.timeout_seconds, trust_env=False) as http:
            for number in itertools.count():
                request = self.request(number)
                began = self.asks_since = time.monotonic()
                try:
                    response = http.send(request)
                    error = None if self.is_right(response) else f"{response.status_code} {response.text[:300]}"
                except httpx.HTTPError as failure:
                    error = repr(failure)
                self.samples.append(Sample(began, time.monotonic() - began, error))
                self.asks_since = None
                if self._stopping.wait(self.pause_seconds):
                    return


def percentile(samples: Sequence[Sample], part: float) -> float:
    """The time within which this part of the requests was answered; infinite where there was none."""
    times = sorted(sample.seconds for sample in samples)
    return times[min(len(times) - 1, int(part * len(times)))] if times else math.inf


def slowdown(before: Sequence[Sample], now: Sequence[Sample]) -> float:
    """How many times slower the control is than before, never below 1: by its mean and by its 99th percentile."""
    if not before or not now:
        return 1.0
    mean = sum(sample.seconds for sample in now) / len(now) * len(before) / sum(sample.seconds for sample in before)
    return max(1.0, mean, percentile(now, 0.99) / percentile(before, 0.99))


def publisher(url: str, secret: str, table: str, *, name: str = "publish", wait: str = "") -> SteadyClient:
    def request(number: int) -> httpx.Request:
        events = [{"id": uuid.uuid4().hex, "data": {"number": number}} for _ in range(5)]
        return _request(f"{url}/v1/tables/{table}/events{wait}", secret, {"events": events})

    return SteadyClient(name, request)


def querier(url: str, secret: str, table: str, *, name: str = "query") -> SteadyClient:
    body = {"sql": f"SELECT count(*), max(number) FROM {table}"}
    return SteadyClient(name, lambda _: _request(f"{url}/v1/query", secret, body))


def searcher(url: str, secret: str, table: str, *, name: str = "search") -> SteadyClient:
    words = ("river ice", "frozen lake", "snow", "harbour in winter")

    def request(number: int) -> httpx.Request:
        return _request(f"{url}/v1/search", secret, {"table": table, "query": words[number % len(words)], "k": 5})

    return SteadyClient(name, request, is_right=lambda response: response.is_success and bool(response.json()["hits"]))


def control(url: str) -> SteadyClient:
    """Asks the control server, and leaves the processor to others for most of the time."""
    return SteadyClient("control", lambda _: httpx.Request("GET", url), pause_seconds=0.12)


def _request(url: str, secret: str, body: object) -> httpx.Request:
    return httpx.Request("POST", url, json=body, headers={"Authorization": f"Bearer {secret}"})
