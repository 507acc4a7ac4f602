"""`POST /v1/search` by vector on the whole product: the set is published with its vectors, committed, built, served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.processes import Child, a_program, configure, processor_seconds, running_product, settings_in
from benchmarks.report import median, percentile, say
from benchmarks.vector_set import DIMS, K, VectorSet
from frazil.client import Client
from frazil.errors import FrazilError, Unavailable
from frazil.runtime import DataDir

TABLE = "sentences"
DECLARATION: dict[str, Any] = {
    "name": TABLE,
    "columns": {"body": "string", "slot": "long", "vector": "list<float>"},
    "text": ["body"],
    "search": {"vector": "vector"},
}
ARROW = "application/vnd.apache.arrow.stream"
CONFIGURATION = "[search]\nbuild_seconds = 0\nbuild_after_rows = 0\n"
"""Nothing is built but what is asked for: a build of the cadence would be measured too."""
EXTRA_MS = 2.0
RATE_PER_S = 500.0
SERVING_S = 20.0
GOAL = (
    f"HTTP: p50 <= engine + {EXTRA_MS:g} ms, >= {RATE_PER_S:g} requests/s of 8 clients; "
    f"snapshot to serving <= {SERVING_S:g} s"
)
JUDGED = "committed"
PROCESSES, CONNECTIONS = 2, 8
_ROWS_PER_BODY = 4_000
_WAIT_SECONDS = 900.0
_WARM_UPS = 30
_TURN = 50

Engine = Callable[[Sequence[int]], list[float]]
"""The seconds that each of these queries takes without HTTP."""


def measured(folder: Path, made: VectorSet, engine: Engine, *, seconds: float) -> dict[str, Any]:
    """One client alone, in turns with the engine, then eight; every answer is checked against the truth."""
    folder.mkdir(parents=True)
    settings = settings_in(folder)
    configure(settings, CONFIGURATION)
    with ExitStack() as running:
        client = running.enter_context(running_product(settings))
        publish(client, made)
        serving = serve(client)
        say(f"served over HTTP {serving['seconds']:.1f} s after the build was asked for")
        scopes = [f"read:{TABLE}", "sql"]
        token = client.tokens.create("searcher", scopes, rate_per_second=100_000, burst=100_000)["token"]
        access = {"FRAZIL_URL": settings.address, "FRAZIL_TOKEN": str(token)}
        stage = _Stage(
            made,
            [running.enter_context(a_program("searchers", folder, environment=access)) for _ in range(PROCESSES)],
            engine,
            lambda: processor_seconds(DataDir(settings.data_dir))["gateway"],
        )
        told = {freshness: stage.asked(freshness, seconds) for freshness in ("live", JUDGED)}
        return {**told, "snapshot_to_serving": serving}


def bodies(made: VectorSet) -> Iterator[bytes]:
    """The set as Arrow streams: an id, the sentence and its vector."""
    for start in range(0, made.rows, _ROWS_PER_BODY):
        texts = made.texts[start : start + _ROWS_PER_BODY]
        flat = pa.array(made.vectors[start : start + len(texts)].reshape(-1))
        offsets = pa.array(range(0, (len(texts) + 1) * DIMS, DIMS), pa.int32())
        batch = pa.record_batch(
            {
                "id": pa.array([f"s{number}" for number in range(start, start + len(texts))]),
                "body": pa.array(texts),
                "slot": pa.array(made.slots[start : start + len(texts)]),
                "vector": pa.ListArray.from_arrays(offsets, flat),
            }
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()


def publish(client: Client, made: VectorSet) -> None:
    client.create_table(**DECLARATION)
    receipt = None
    for body in bodies(made):
        receipt = client.publish_body(TABLE, body, ARROW)
    assert receipt is not None
    _committed(client, receipt.token)
    client.embed(TABLE)
    say(f"{made.rows:,} rows are committed, with their vectors")


def serve(client: Client) -> dict[str, Any]:
    """Ask for a build, and wait until a search is answered from it: what of the time the job took, and the whole."""
    began = time.monotonic()
    done = client.jobs.run("build", {}, table=TABLE, timeout_s=_WAIT_SECONDS)
    built = time.monotonic()
    vector = [1.0] * DIMS
    while client.search(TABLE, vector=vector, mode="vector", k=1, freshness="committed").generation is None:
        if time.monotonic() - began > _WAIT_SECONDS:
            raise Unavailable("the artifact is built, and no gateway serves it", code="not_served")
        time.sleep(0.05)
    report = {name: value for name, value in done.items() if name in ("seconds", "steps", "vectors", "rows")}
    return {"seconds": time.monotonic() - began, "build_s": built - began, "job": report}


def _committed(client: Client, token: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not client.visibility(token, wait_s=20)["visible"]:
        if time.monotonic() > deadline:
            raise Unavailable("the sentences are not committed", code="not_committed")


@dataclass(frozen=True)
class _Stage:
    made: VectorSet
    searchers: list[Child]
    engine: Engine
    gateway_seconds: Callable[[], float]
    """Processor seconds of the gateway until now."""

    def asked(self, freshness: str, seconds: float) -> dict[str, Any]:
        order = {"table": TABLE, "queries": str(self.made.folder / "queries.npy"), "k": K, "freshness": freshness}
        self.searchers[0].ask({**order, "numbers": list(range(min(_WARM_UPS, self.made.queries)))})
        told = {**self._alone(order), **self._together(order, seconds)}
        say(
            f"over HTTP, {freshness}: p50 {told['p50_ms']:.2f} ms, engine {told['engine_p50_ms']:.2f} ms, "
            f"{told['requests_per_s']:.0f} requests/s"
        )
        return told

    def _alone(self, order: Mapping[str, Any]) -> dict[str, Any]:
        numbers = list(range(self.made.queries))
        alone, beside = [], []
        for at in range(0, len(numbers), _TURN):
            turn = numbers[at : at + _TURN]
            alone += self.searchers[0].ask({**order, "numbers": turn})["asked"]
            beside += self.engine(turn)
        if any(len(one["ids"]) != min(K, self.made.rows) or one["generation"] is None for one in alone):
            raise FrazilError("an answer over HTTP has no ten hits, or none of a generation")
        return {
            "recall": self.made.recall([[int(name[1:]) for name in one["ids"]] for one in alone], numbers),
            "p50_ms": 1000 * percentile([one["seconds"] for one in alone], 0.5),
            "p99_ms": 1000 * percentile([one["seconds"] for one in alone], 0.99),
            "gateway_p50_ms": 1000 * median([one["gateway_seconds"] for one in alone]),
            "engine_p50_ms": 1000 * percentile(beside, 0.5),
        }

    def _together(self, order: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        numbers = list(range(self.made.queries))
        together = {**order, "numbers": numbers, "connections": CONNECTIONS // PROCESSES, "seconds": seconds}
        before = self.gateway_seconds()
        with ThreadPoolExecutor(len(self.searchers)) as threads:
            answers = list(threads.map(lambda child: child.ask(together), self.searchers))
        used = self.gateway_seconds() - before
        many = [one["seconds"] for answer in answers for one in answer["asked"]]
        return {
            "clients": CONNECTIONS,
            "requests_per_s": sum(len(answer["asked"]) / answer["seconds"] for answer in answers),
            "clients_p50_ms": 1000 * percentile(many, 0.5),
            "clients_p99_ms": 1000 * percentile(many, 0.99),
            "clients_processor_ms": 1000 * sum(answer["processor_seconds"] for answer in answers) / len(many),
            "gateway_processor_ms": 1000 * used / len(many),
        }


def goals(told: Mapping[str, Any]) -> dict[str, bool | None]:
    """A goal that was not measured is None."""
    if not told:
        return {"http": None, "http_clients": None, "snapshot_to_serving": None}
    judged = told[JUDGED]
    return {
        "http": judged["p50_ms"] <= judged["engine_p50_ms"] + EXTRA_MS,
        "http_clients": judged["requests_per_s"] >= RATE_PER_S,
        "snapshot_to_serving": told["snapshot_to_serving"]["seconds"] <= SERVING_S,
    }
