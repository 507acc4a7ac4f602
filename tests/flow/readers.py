"""Writers that count, and readers that check every live answer against what the writers were promised.

A writer sends batches of its own series 0, 1, 2, … and does not go on before the last batch has its receipt. So at any
moment the rows of a writer must be 0 … n without a gap or a repeat; n is at least what was acknowledged before the
read began, at most what was sent when it ended, and never less than what the same reader saw before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

COLUMNS = {"writer": "int", "n": "long", "pad": "string"}
COUNTED = "SELECT writer, count(*), count(DISTINCT n), min(n), max(n), count(DISTINCT _seq) FROM series GROUP BY writer"
LISTED = "SELECT writer, n FROM series WHERE writer = $1 ORDER BY n"


@dataclass
class Writer:
    """One series. What has no receipt is sent again under the same ids until it has one."""

    url: str
    token: str
    number: int
    stopping: threading.Event
    batch: int = 7
    pause_seconds: float = 0.02
    sent: int = -1
    acked: int = -1
    receipts: int = 0
    newest_token: str = ""
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        with _client(self.token) as http:
            while not self.stopping.is_set():
                numbers = range(self.acked + 1, self.acked + 1 + self.batch)
                events = [
                    {"id": f"{self.number}-{n}", "data": {"writer": self.number, "n": n, "pad": "x" * 50}}
                    for n in numbers
                ]
                self.sent = numbers[-1]
                while not self._accepted(http, events):
                    if self.stopping.is_set():
                        return
                    time.sleep(0.1)
                self.acked = numbers[-1]
                self.receipts += 1
                time.sleep(self.pause_seconds)

    def _accepted(self, http: httpx.Client, events: Sequence[dict[str, Any]]) -> bool:
        try:
            answer = http.post(f"{self.url}/v1/tables/series/events", json={"events": list(events)})
        except httpx.HTTPError:
            return False
        if answer.status_code == 202:
            self.newest_token = answer.json()["token"]
            return True
        if answer.status_code != 503:
            self.wrong.append(f"{answer.status_code} {answer.text[:200]}")
        return False


@dataclass
class Reader:
    """Reads all series again and again. What is wrong with an answer is kept with the answer."""

    url: str
    token: str
    writers: Sequence[Writer]
    stopping: threading.Event
    freshness: str = "live"
    pause_seconds: float = 0.01
    reads: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    moved: int = 0
    """How often the snapshot was another one than in the read before: commits that fell between two reads."""
    _snapshot: Any = None

    def run(self) -> None:
        with _client(self.token) as http:
            while not self.stopping.is_set():
                self.read(http)
                time.sleep(self.pause_seconds)  # commits and compactions need the processor, too

    def read(self, http: httpx.Client) -> None:
        acked = {writer.number: writer.acked for writer in self.writers}
        listing = self.reads % 10 == 9
        body: dict[str, Any] = {"sql": COUNTED, "freshness": self.freshness, "when_behind": "wait"}
        if listing:
            writer = self.writers[self.reads % len(self.writers)].number
            body |= {"sql": LISTED, "parameters": [writer], "max_rows": 1_000_000}
        try:
            answer = http.post(f"{self.url}/v1/query", json=body)
        except httpx.HTTPError:
            self.refused += 1
            time.sleep(0.05)
            return
        if answer.status_code != 200:
            self.refused += 1
            if answer.status_code not in (502, 503, 504):
                self.wrong.append(f"{answer.status_code} {answer.text[:300]}")
            time.sleep(0.05)
            return
        self.reads += 1
        content = answer.json()
        if listing:
            self._check_listing(body["parameters"][0], content, acked)
        else:
            self._check_counts(content, acked)
        snapshot = content["snapshots"]["series"]["snapshot_id"]
        self.moved += snapshot != self._snapshot
        self._snapshot = snapshot

    def _check_counts(self, content: dict[str, Any], acked: dict[int, int]) -> None:
        newest = {writer: -1 for writer in acked}
        for writer, rows, different, least, most, positions in content["rows"]:
            newest[writer] = most
            if not (rows == different == positions and least == 0 and rows == most + 1):
                self._wrong(content, f"writer {writer}: {rows} rows, {different} numbers, {least} to {most}")
        self._check_newest(newest, acked, content)

    def _check_listing(self, writer: int, content: dict[str, Any], acked: dict[int, int]) -> None:
        numbers = [n for _, n in content["rows"]]
        if numbers != list(range(len(numbers))):
            self._wrong(content, f"writer {writer}: a gap or a repeat among {len(numbers)} rows")
        self._check_newest({writer: len(numbers) - 1}, acked, content)

    def _check_newest(self, newest: dict[int, int], acked: dict[int, int], content: dict[str, Any]) -> None:
        sent = {writer.number: writer.sent for writer in self.writers}
        for writer, most in newest.items():
            if self.freshness == "live" and most < acked[writer]:
                self._wrong(content, f"writer {writer}: {acked[writer]} had its receipt, {most} is the newest read")
            if most > sent[writer]:
                self._wrong(content, f"writer {writer}: {most} was read, {sent[writer]} is the newest sent")
            if most < self.seen.get(writer, -1):
                self._wrong(content, f"writer {writer}: {self.seen[writer]} was read before, now {most}")
            self.seen[writer] = max(most, self.seen.get(writer, -1))

    def _wrong(self, content: dict[str, Any], what: str) -> None:
        told = {word: content[word] for word in ("snapshots", "token", "elapsed_ms")}
        self.wrong.append(f"read {self.reads} ({self.freshness}): {what}; {told}")


class Readers:
    """Writers and readers side by side, on a running product."""

    def __init__(self, url: str, token: str, *, writers: int = 3, live: int = 3, committed: int = 1) -> None:
        self._stop_reading, self._stop_writing = threading.Event(), threading.Event()
        self.writers = [Writer(url, token, number, self._stop_writing) for number in range(writers)]
        self.readers = [Reader(url, token, self.writers, self._stop_reading) for _ in range(live)]
        self.readers += [
            Reader(url, token, self.writers, self._stop_reading, freshness="committed") for _ in range(committed)
        ]
        self._threads: dict[str, list[threading.Thread]] = {}

    def start(self) -> None:
        self._threads["writers"] = [_started(writer.run) for writer in self.writers]
        self._threads["readers"] = [_started(reader.run) for reader in self.readers]

    @property
    def reads(self) -> int:
        return sum(reader.reads for reader in self.readers)

    def stop(self) -> None:
        """Writers first: the readers then see the end of every series."""
        for event, name in ((self._stop_writing, "writers"), (self._stop_reading, "readers")):
            event.set()
            for thread in self._threads[name]:
                thread.join(120)
                assert not thread.is_alive(), f"one of the {name} hangs"

    def wrong(self) -> list[str]:
        of_writers = [text for writer in self.writers for text in writer.wrong]
        return of_writers + [text for reader in self.readers for text in reader.wrong]


def _started(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _client(token: str) -> httpx.Client:
    return httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=httpx.Timeout(60), trust_env=False)
