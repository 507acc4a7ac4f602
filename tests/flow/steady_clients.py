"""Well-behaved clients that go on throughout a test, each with a token of its own, and are measured."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

PAUSE_SECONDS = 0.04


@dataclass(frozen=True)
class Sample:
    began: float
    seconds: float
    error: str | None


@dataclass
class SteadyClient:
    """Sends one request after the other; `samples` has each of them."""

    name: str
    request: Callable[[int], httpx.Request]
    timeout_seconds: float = 30.0
    is_right: Callable[[httpx.Response], bool] = lambda response: response.is_success
    samples: list[Sample] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self.timeout_seconds + 30)

    def between(self, began: float, ended: float) -> list[Sample]:
        return [sample for sample in list(self.samples) if began <= sample.began < ended]

    def _run(self) -> None:
        with httpx.Client(timeout=self.timeout_seconds, trust_env=False) as http:
            for number in itertools.count():
                began = time.monotonic()
                try:
                    response = http.send(self.request(number))
                    error = None if self.is_right(response) else f"{response.status_code} {response.text[:300]}"
                except httpx.HTTPError as failure:
                    error = repr(failure)
                self.samples.append(Sample(began, time.monotonic() - began, error))
                if self._stopping.wait(PAUSE_SECONDS):
                    return


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


def _request(url: str, secret: str, body: object) -> httpx.Request:
    return httpx.Request("POST", url, json=body, headers={"Authorization": f"Bearer {secret}"})
