"""Health log: what `GET /v1/health` says without a token, asked several times a second throughout a test."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import httpx

TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class Telling:
    asked: float
    told: float
    status: str | None
    """None where there was no answer within three seconds."""


@dataclass
class HealthLog:
    url: str
    tellings: list[Telling] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(TIMEOUT_SECONDS + 30)

    def _run(self) -> None:
        with httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False) as http:
            while not self._stopping.wait(0.1):
                asked = time.monotonic()
                status: str | None = None
                try:
                    status = str(http.get(f"{self.url}/v1/health").json()["status"])
                except httpx.HTTPError:
                    status = None
                self.tellings.append(Telling(asked, time.monotonic(), status))

    def between(self, began: float, ended: float) -> list[Telling]:
        """Asked and answered in this time."""
        return [one for one in list(self.tellings) if began <= one.asked and one.told < ended]

    def first(self, since: float, *, ok: bool) -> Telling | None:
        """The first that was asked for since then and says ok, or does not."""
        return next((one for one in list(self.tellings) if one.asked >= since and (one.status == "ok") == ok), None)
