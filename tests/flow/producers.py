"""Producers as users write them: plain HTTP, several at once, that note what they sent and what they were promised.

Each line of a producer's log is written before the next thing happens: `sent` before the request leaves, `acked` when
the receipt is there, `unknown` when anything else comes, or nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

COLUMNS = {
    "producer": "int",
    "number": "long",
    "words": "string",
    "amount": "decimal(20,4)",
    "checksum": "string",
}
_WORDS = ("frost", "ice ❄", "slush \u0000", "", "névé\n", "🧊" * 3)
_names = itertools.count()


def checksum(event_id: str, producer: int, number: int, words: str, amount: Decimal) -> str:
    """Over every field of an event as it must come back."""
    text = f"{event_id}|{producer}|{number}|{words}|{amount:.4f}"
    return hashlib.sha256(text.encode()).hexdigest()


def event(event_id: str, producer: int, number: int) -> dict[str, Any]:
    big = 2**53 + 1 + number
    words = _WORDS[number % len(_WORDS)]
    amount = Decimal(big) / 10000
    fields = {"producer": producer, "number": big, "words": words, "amount": f"{amount:.4f}"}
    return {"id": event_id, "data": {**fields, "checksum": checksum(event_id, producer, big, words, amount)}}


@dataclass(frozen=True)
class Answer:
    """What came back for one request: a status, or 0 for nothing at all."""

    asked_at: float
    answered_at: float
    status: int
    code: str
    retry_after: str | None
    accepted: int
    """Events that this request added, by its receipt; the others were there already."""


@dataclass
class Producer:
    """One thread. With `retries` it sends what was not acknowledged again under the same ids, until it is."""

    url: str
    token: str
    table: str
    log: Path
    retries: bool
    events_per_request: int
    pause_seconds: float
    number: int
    stopping: threading.Event
    stop_by: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        lucky = random.Random(self.number)
        prefix = f"{self.log.stem}-"
        timeout = httpx.Timeout(30, connect=5)
        with self.log.open("a", buffering=1) as log, httpx.Client(timeout=timeout, trust_env=False) as client:
            for batch in itertools.count():
                if self.stopping.is_set():
                    return
                numbers = range(batch * self.events_per_request, (batch + 1) * self.events_per_request)
                events = [event(f"{prefix}{number}", self.number, number) for number in numbers]
                acked = self._send(client, log, events)
                while not acked and self.retries and not self._hopeless():
                    time.sleep(0.2)
                    acked = self._send(client, log, events)
                if acked and lucky.random() < 0.1:
                    self._send(client, log, events)  # as a producer does whose own memory of the ack was lost
                time.sleep(self.pause_seconds)

    def _hopeless(self) -> bool:
        """After the end a producer still wants to know about what it sent last, but not for ever."""
        return self.stopping.is_set() and time.monotonic() > self.stop_by

    def _send(self, client: httpx.Client, log: Any, events: list[dict[str, Any]]) -> bool:
        ids = ",".join(event["id"] for event in events)
        log.write(f"sent\t{self.table}\t{ids}\n")
        asked_at = time.monotonic()
        status, code, retry_after, body = 0, "", None, {}
        try:
            answer = client.post(
                f"{self.url}/v1/tables/{self.table}/events",
                content=json.dumps({"events": events}),
                headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            )
            status, retry_after = answer.status_code, answer.headers.get("retry-after")
            body = answer.json()
            code = str(body.get("error", {}).get("code", ""))
        except (httpx.HTTPError, ValueError) as error:
            status, code = 0, type(error).__name__
        log.write(f"{'acked' if status == 202 else 'unknown'}\t{self.table}\t{ids}\n")
        accepted = int(body.get("accepted", 0)) if status == 202 else 0
        self.answers.append(Answer(asked_at, time.monotonic(), status, code, retry_after, accepted))
        if status == 202 and body["accepted"] + body["duplicates"] != len(events):
            self.wrong.append(f"a receipt for {body} instead of {len(events)} events")
        elif status not in (0, 202, 500, 503):
            self.wrong.append(f"{status} {body}")
        return status == 202


class Producers:
    """Several producers on several tables; every second one tries again, the others take no answer for an answer."""

    def __init__(
        self,
        url: str,
        token: str,
        tables: Sequence[str],
        logs: Path,
        *,
        each: int = 2,
        events_per_request: int = 20,
        pause_seconds: float = 0.05,
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._stopping = threading.Event()
        self._producers = []
        for table in tables:
            for retries in itertools.islice(itertools.cycle((True, False)), each):
                number = next(_names)
                self._producers.append(
                    Producer(
                        url=url,
                        token=token,
                        table=table,
                        log=logs / f"p{number}.log",
                        retries=retries,
                        events_per_request=events_per_request,
                        pause_seconds=pause_seconds,
                        number=number,
                        stopping=self._stopping,
                    )
                )
        self._threads = [threading.Thread(target=producer.run, daemon=True) for producer in self._producers]

    def __enter__(self) -> Producers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(seconds=5.0 if error[0] else 120.0)

    def stop(self, *, seconds: float = 120.0) -> None:
        """End; those that try again may first have what they sent last acknowledged."""
        for producer in self._producers:
            producer.stop_by = time.monotonic() + seconds
        self._stopping.set()
        for thread in self._threads:
            thread.join(seconds + 60)
            assert not thread.is_alive(), "a producer hangs"
        wrong = [words for producer in self._producers for words in producer.wrong]
        assert not wrong, wrong[:5]

    def answers(self) -> list[Answer]:
        return sorted(
            (answer for producer in self._producers for answer in list(producer.answers)), key=lambda a: a.asked_at
        )

    def acked(self) -> int:
        """Requests acknowledged so far."""
        return sum(answer.status == 202 for answer in self.answers())

    def statuses(self) -> Counter[tuple[int, str]]:
        return Counter((answer.status, answer.code) for answer in self.answers())
