"""Every answer of the API is JSON with a code: all routes, with requests that are wrong in every way we could think of.

Each answer is also held against the description that GET /v1/openapi.json gives of its operation.

A new route fails `test_every_route_has_an_example` until it has one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import pytest_asyncio
from starlette.types import ASGIApp

from frazil.bus.memory import MemoryBus
from frazil.lake.catalog import Lake, open_lake
from frazil.serving.sql import QueryPool, QuerySettings
from frazil.storage import Warehouse
from tests.gateway.http.described import Description
from tests.gateway.http.fuzz import UNIQUE, Example, Incidents, Mutator, Sent, call, fault_of, request_of, routes_of
from tests.gateway.http.generated import generated
from tests.gateway.http.harness import TOKEN, Running, commit, ndjson, running
from tests.gateway.http.test_maintenance import pipeline_says
from tests.gateway.search.place import BY_WORD, NOTES, Place

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEED = 12
MUTANTS = 20
"""Of each route, for each kind of caller."""
GENERATED = 6
"""Of each operation: so many requests that are as described, and so many that are not."""

TYPES = {
    "item": "string",
    "amount": "decimal(12,2)",
    "count": "long",
    "ratio": "double",
    "at": "timestamp",
    "day": "date",
    "flags": "list<bool>",
    "vector": "list<float>",
    "extra": "json",
    "body": "binary",
}
ORDERS: dict[str, Any] = {"name": "orders", "columns": TYPES, "owner": "shop", "tags": ["a"], "partition": ["day(at)"]}
USERS: dict[str, Any] = {
    "name": "users",
    "kind": "entity",
    "key": ["id"],
    "columns": {"id": "string", "name": "string"},
}
ROW = {
    "item": "ice",
    "amount": "1.50",
    "count": 3,
    "ratio": 0.5,
    "at": "2026-11-01T10:00:00Z",
    "day": "2026-11-01",
    "flags": [True],
    "vector": [0.5, 1],
    "extra": {"a": [1, None]},
    "body": "aWNl",
}
T, N, U, P = {"table": "orders"}, {"table": "notes"}, {"table": "users"}, {"table": "papers"}


def arrow_of(row: dict[str, Any]) -> bytes:
    data = pa.array([{"item": row["item"], "count": row["count"]}])
    table = pa.table({"id": pa.array(["a"]), "data": data})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


SNAPSHOT = "snapshot"
"""Stands for the id of the only snapshot of `orders`."""
GENERATION = "generation"
"""Stands for the artifact of `papers`."""

EXAMPLES: dict[tuple[str, str], Example] = {
    ("POST", "/v1/query"): Example(
        body={
            "sql": "SELECT count(*) FROM orders WHERE count > $1",
            "parameters": [1],
            "freshness": "live",
            "as_of": {"users": "2026-11-01T10:00:00Z"},
            "snapshot": {"users": 7},
            "format": "json",
            "max_rows": 10,
            "timeout_s": 5,
            "when_behind": "error",
        }
    ),
    ("POST", "/v1/search"): Example(
        body={
            "table": "notes",
            "query": "green tea",
            "vector": [0.5] * 256,
            "mode": "hybrid",
            "k": 5,
            "offset": 0,
            "min_score": 0.1,
            "weights": {"vector": 1, "text": 0.5},
            "fields": {"body": 1},
            "filter": "year > 2000",
            "columns": ["title"],
            "group": "document",
            "snippet": 20,
            "freshness": "live",
            "timeout_s": 5,
            "when_behind": "error",
        }
    ),
    ("POST", "/v1/tables/{table}/events"): Example(
        T,
        (("timeout_s", "1"),),
        {"events": [{"id": UNIQUE, "ts": "2026-11-01T10:00:00Z", "op": "insert", "data": ROW}]},
    ),
    ("POST", "/v1/tables"): Example(body=ORDERS),
    ("GET", "/v1/tables"): Example(query=(("dropped", "false"),)),
    ("GET", "/v1/tables/{table}"): Example(T),
    ("PATCH", "/v1/tables/{table}"): Example(T, (), {"description": "x", "owner": "shop", "tags": ["a"], "widen": {}}),
    ("DELETE", "/v1/tables/{table}"): Example(
        {"table": "gone"}, (("purge", "false"), ("dry_run", "false")), answers="table_not_found"
    ),
    ("POST", "/v1/tables/{table}/undrop"): Example({"table": "gone"}, answers="table_not_found"),
    ("POST", "/v1/tables/{table}/repair"): Example(
        T,
        (),
        {"what": "watermark", "accept_loss": False},
    ),
    ("GET", "/v1/tables/{table}/history"): Example(T, (("limit", "5"),)),
    ("GET", "/v1/tables/{table}/rows/{id:path}/history"): Example({**T, "id": "e1"}),
    ("GET", "/v1/tables/{table}/rows"): Example(U, (("key", "id=u1"),)),
    ("GET", "/v1/tables/{table}/changes"): Example(T, (("from", SNAPSHOT), ("to", SNAPSHOT), ("limit", "5"))),
    ("POST", "/v1/tables/{table}/export-hint"): Example(T),
    ("GET", "/v1/tables/{table}/health"): Example(T),
    ("POST", "/v1/tables/{table}/maintenance"): Example(
        T, (), {"what": "compact", "sort": ["item"], "dry_run": True, "all_snapshots": False}
    ),
    ("POST", "/v1/loads/csv"): Example(
        body={
            "table": "loaded",
            "files": ["/tmp/nowhere.csv"],
            "mode": "append",
            "delimiter": ",",
            "encoding": "utf-8",
            "columns": {"a": "long"},
            "max_bad": {"rows": 3},
        }
    ),
    ("POST", "/v1/loads/postgres"): Example(
        body={"source": "shop", "what": "archive", "tables": ["public.orders"], "run_date": "2026-11-01"}
    ),
    ("GET", "/v1/tables/{table}/loads"): Example(T, (("limit", "5"),)),
    ("GET", "/v1/tables/{table}/dead-letters"): Example(T, (("limit", "5"),)),
    ("POST", "/v1/tables/{table}/dead-letters/resend"): Example(T, body={"positions": [1]}),
    ("POST", "/v1/tables/{table}/dead-letters/discard"): Example(T, body={"positions": [1]}),
    ("POST", "/v1/tables/{table}/loads"): Example(
        {"table": "loaded"},
        (("filename", "a.csv"), ("mode", "append"), ("header", "true")),
        b"a,b\n1,2\n",
        content_type="text/csv",
    ),
    ("POST", "/v1/tables/{table}/embed"): Example(N, (), {"model": "wordllama"}),
    ("GET", "/v1/tables/{table}/embeddings"): Example(N),
    ("DELETE", "/v1/tables/{table}/embeddings/{model}"): Example({**N, "model": "wordllama"}, answers="model_in_use"),
    ("GET", "/v1/tables/{table}/artifacts"): Example(P),
    ("POST", "/v1/tables/{table}/artifacts/rollback"): Example(P, answers="artifact_no_previous"),
    ("GET", "/v1/tables/{table}/artifacts/{generation}"): Example({**P, "generation": GENERATION}),
    ("POST", "/v1/tables/{table}/artifacts/{generation}/verify"): Example({**P, "generation": GENERATION}),
    ("POST", "/v1/tables/{table}/artifacts/{generation}/promote"): Example({**P, "generation": GENERATION}),
    ("GET", "/v1/profiles"): Example(query=(("table", "notes"),)),
    ("GET", "/v1/profiles/{name}"): Example({"name": "fast"}),
    ("PUT", "/v1/profiles/{name}"): Example(
        {"name": "fast"},
        (),
        {
            "table": "notes",
            "filter": "year > 2000",
            "mode": "text",
            "k": 5,
            "columns": ["title"],
            "index": {"kind": "flat"},
        },
    ),
    ("DELETE", "/v1/profiles/{name}"): Example({"name": "nobody"}, answers="profile_not_found"),
    ("POST", "/v1/tables/{table}/build"): Example(N, (), {"force": True, "profile": "fast"}),
    ("POST", "/v1/tables/{table}/trials"): Example(N, (), {"kinds": ["flat"], "k": 5, "queries": 10}),
    ("GET", "/v1/tables/{table}/trials"): Example(N, (("run", "x"), ("limit", "5"))),
    ("POST", "/v1/tables/{table}/trials/best"): Example(
        N, (), {"recall": 0.9, "promote": False}, answers="model_not_found"
    ),
    ("DELETE", "/v1/tables/{table}/trials/best"): Example(N, (("model", "wordllama"),)),
    ("GET", "/v1/jobs"): Example(),
    ("GET", "/v1/jobs/{id}"): Example({"id": "nobody"}, answers="job_not_found"),
    ("GET", "/v1/health/tables"): Example(),
    ("POST", "/v1/tokens"): Example(
        body={
            "name": "a",
            "grants": [
                "sql",
                {"scope": "read:orders", "where": "count > 1", "mask": {"item": "hash(people)", "at": "null"}},
            ],
            "expires_in_s": 60,
            "rate_per_second": 5,
            "burst": 9,
        }
    ),
    ("GET", "/v1/tokens"): Example(),
    ("GET", "/v1/tokens/{id}"): Example({"id": "0123456789ab"}, answers="token_not_found"),
    ("DELETE", "/v1/tokens/{id}"): Example({"id": "0123456789ab"}, answers="token_not_found"),
    ("POST", "/v1/tokens/{id}/rotate"): Example({"id": "0123456789ab"}, (), {"grace_s": 5}, answers="token_not_found"),
    ("GET", "/v1/visibility"): Example(query=(("token", "fzt1.e30"), ("wait_s", "0.1"))),
    ("GET", "/v1/health"): Example(),
    ("GET", "/v1/status"): Example(),
    ("GET", "/v1/journal"): Example(query=(("limit", "5"),)),
    ("GET", "/metrics"): Example(),
    ("GET", "/"): Example(),
    ("GET", "/v1/openapi.json"): Example(),
}


NDJSON = "application/x-ndjson"
_EVENTS = ("POST", "/v1/tables/{table}/events")
MORE: list[tuple[tuple[str, str], Example]] = [
    (_EVENTS, Example(T, (), ndjson({"id": f"{UNIQUE}-{n}", "data": ROW} for n in range(3)), content_type=NDJSON)),
    (_EVENTS, Example(T, (), arrow_of(ROW), content_type="application/vnd.apache.arrow.stream")),
    (_EVENTS, Example(U, (), {"events": [{"id": UNIQUE, "op": "upsert", "data": {"id": "u1", "name": "B"}}]})),
    (("POST", "/v1/query"), Example(body={"sql": "SELECT * FROM orders", "parameters": {}, "format": "arrow"})),
    (("POST", "/v1/query"), Example(body={"sql": "SELECT * FROM users", "format": "csv", "freshness": "committed"})),
    (("POST", "/v1/search"), Example(body={"table": "notes", "vector": [0.5] * 256, "mode": "vector", "k": 3})),
    (("POST", "/v1/search"), Example(body={"profile": "fast", "query": "tea", "fields": ["body"], "snippet": True})),
    (("POST", "/v1/tables"), Example(body=USERS)),
    (("POST", "/v1/tables"), Example(body=NOTES)),
    (("DELETE", "/v1/tables/{table}"), Example(U)),
    (("POST", "/v1/tables/{table}/undrop"), Example(U, answers="table_exists")),
]  # fmt: skip
"""Other requests of some of these routes."""


@dataclass
class Target:
    running: Running
    app: ASGIApp
    folder: Path
    lake: Lake
    bus: MemoryBus
    limited: str
    generation: str
    incidents: Incidents
    description: Description

    @property
    def callers(self) -> dict[str, str | None]:
        return {"admin": TOKEN, "limited": self.limited, "nobody": None}

    def filled(self, example: Example) -> Example:
        snapshot = str(self.lake.table("main.orders").snapshot_id)
        query = tuple((name, snapshot if value == SNAPSHOT else value) for name, value in example.query)
        params = {name: self.generation if value == GENERATION else value for name, value in example.params.items()}
        return Example(params, query, example.body, example.answers, example.content_type)

    async def restore(self) -> None:
        """Bring back what a request may have taken away."""
        pipeline_says(self.folder, "ok")
        for table in (ORDERS, NOTES, USERS):
            await self.running.http.post("/v1/tables", json=table)
        await self.running.http.put("/v1/profiles/fast", json={"table": "notes", "mode": "text"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    folder = tmp_path_factory.mktemp("fuzzed-gateway")
    lake = open_lake(f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse"))
    bus = MemoryBus(max_bytes=256 << 20)
    pool = QueryPool(QuerySettings(workers=2), lake.warehouse, readable=[folder / "audit"])
    async with running(bus, lake, folder, pool=pool, pace=BY_WORD) as started:
        for table in (ORDERS, NOTES, USERS):
            made = await started.http.post("/v1/tables", json=table)
            assert made.status_code == 201, made.text
        await started.accept([{"id": "e1", "data": ROW}, {"id": "e2", "data": ROW}])
        await started.accept([{"id": "n1", "data": {"title": "tea", "body": "green tea", "year": 2020}}], table="notes")
        await started.accept([{"id": "u1", "data": {"id": "u1", "name": "Ann"}}], table="users")
        await commit(bus, lake)
        place = Place(folder, lake, bus)
        await place.declare(name="papers")
        promoted = await place.promote(place.of_year(2020, name="main.papers"), name="main.papers")
        await started.gateway.directory.refresh()
        grants = [
            "sql",
            "ingest:notes",
            "ingest:loaded",
            "read:users",
            "read:notes",
            {"scope": "read:orders", "where": "count > 1", "mask": {"item": "hash", "amount": "null"}},
        ]
        made = await started.http.post("/v1/tokens", json={"name": "x", "grants": grants, "rate_per_second": 1e6})
        assert made.status_code == 201, made.text
        assert isinstance(started.http._transport, httpx.ASGITransport)
        app: Any = started.http._transport.app
        document = await started.http.get("/v1/openapi.json")
        description = Description(document.json())
        target = Target(
            started, app, folder, lake, bus, made.json()["token"], promoted.generation, Incidents(), description
        )
        await target.restore()
        logging.getLogger("frazil").addHandler(target.incidents)
        yield target
        logging.getLogger("frazil").removeHandler(target.incidents)
    lake.close()


async def test_every_route_has_an_example(target: Target) -> None:
    assert sorted(routes_of(target.app)) == sorted(EXAMPLES)


async def test_the_examples_are_right(target: Target) -> None:
    differ = []
    for route, one in [*EXAMPLES.items(), *MORE]:
        await target.restore()
        example = target.filled(one)
        got = await call(target.app, request_of(*route, example, TOKEN))
        if got.code != example.answers or fault_of(got, folder=str(target.folder), told_places=True):
            differ.append(f"{route}: not {example.answers} but {got.status} {got.body[:300]!r}")
        if fault := target.description.fault_of(route[0], got.route, got):
            differ.append(f"{route}: {fault}")
        if not isinstance(example.body, bytes) and (fault := target.description.request_fault(*route, example.body)):
            differ.append(f"{route}, its body: {fault}")
    assert not differ, "\n".join(differ)


async def test_the_description_has_every_route(target: Target) -> None:
    described = sorted(target.description.operations)
    assert described == sorted((method, path.replace(":path}", "}")) for method, path in routes_of(target.app))
    ids = [operation["operationId"] for operation in target.description.operations.values()]
    assert len(ids) == len(set(ids))
    got = await call(target.app, request_of("GET", "/v1/openapi.json", Example(), target.limited))
    assert json.loads(got.body) == target.description.document, "it is the same for every token"
    assert (await call(target.app, request_of("GET", "/v1/openapi.json", Example(), None))).code == "unauthorized"


async def test_the_description_has_the_parameters_that_are_read(target: Target) -> None:
    for route, one in EXAMPLES.items():
        example = target.filled(one)
        sent = request_of(*route, Example(example.params, (("nobody_reads_this", "1"),), example.body), TOKEN)
        got = await call(target.app, sent)
        operation = target.description.operations[route[0], route[1].replace(":path}", "}")]
        described = [one["name"] for one in operation["parameters"] if one["in"] == "query"]
        if route[1] in ("/", "/v1/health", "/metrics"):  # probes and scrapers may add what they like
            assert not described and got.code == "ok"
            continue
        assert got.code == "unknown_parameter", route
        hint = json.loads(got.body)["error"]["hint"]
        assert hint == ("the parameters are " + ", ".join(described) if described else "there are none"), route


async def _faults(target: Target, seed: int, mutants: int) -> list[str]:
    """Every fault that was found, once for each route, with a request that has it."""
    mutator = Mutator(seed)
    faults: dict[tuple[Any, ...], str] = {}
    for route, one in [*EXAMPLES.items(), *MORE]:
        for who, token in target.callers.items():
            await target.restore()
            example = target.filled(one)
            count = mutants if token is not None else mutants // 5
            parts = mutator.each_part(*route, example, token, mutants // 5) if who == "admin" else ()
            for sent in (*parts, *mutator.mutants(*route, example, token, count)):
                if (fault := await _fault(target, sent, who)) is not None:
                    faults.setdefault((route, fault), f"{fault}\n    {who}: {sent}")
    return list(faults.values())


async def _fault(target: Target, sent: Sent, who: str) -> str | None:
    try:
        got = await call(target.app, sent)
    except Exception as error:  # what the server would answer in plain text
        return f"it raised {error!r:.300}"
    fault = fault_of(got, folder=str(target.folder), told_places=who == "admin")
    fault = fault or target.description.fault_of(sent.method, got.route, got)
    return fault and f"{fault}: {got.status} {got.body[:300]!r}" if got.status != 500 else target.incidents.last


async def test_no_request_gets_another_answer_than_ours(target: Target) -> None:
    faults = await _faults(target, SEED, MUTANTS)
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)


@pytest.mark.soak
async def test_no_request_gets_another_answer_than_ours_however_long_we_look(target: Target, random_seed: int) -> None:
    faults = await _faults(target, random_seed, 80)
    assert not faults, f"with seed {random_seed}, {len(faults)} faults:\n" + "\n".join(faults)


async def _generated_faults(target: Target, count: int, seed: int) -> list[str]:
    """Every fault of requests that schemathesis makes, once for each route."""
    faults: dict[tuple[Any, ...], str] = {}
    examples = {route: target.filled(one) for route, one in EXAMPLES.items()}
    calls = 0
    for route, requests in generated(target.description.document, examples, TOKEN, count, seed):
        await target.restore()
        for sent in requests:
            calls += 1
            if (fault := await _fault(target, sent, "admin")) is not None:
                faults.setdefault((route, fault), f"{route}: {fault}\n    {sent}")
    assert calls > count * len(EXAMPLES)
    return list(faults.values())


async def test_requests_made_from_the_description_get_answers_that_it_has(target: Target) -> None:
    faults = await _generated_faults(target, GENERATED, SEED)
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)


@pytest.mark.soak
async def test_many_requests_made_from_the_description_get_answers_that_it_has(
    target: Target, random_seed: int
) -> None:
    faults = await _generated_faults(target, 100, random_seed)
    assert not faults, f"with seed {random_seed}, {len(faults)} faults:\n" + "\n".join(faults)
