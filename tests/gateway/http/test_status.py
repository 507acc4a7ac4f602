"""Status, health, metrics and the journal tell the truth."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from frazil.bus.memory import MemoryBus
from frazil.gateway import health as parts
from frazil.lake.catalog import Lake
from frazil.pipeline.status_file import TableCommitStatus
from tests.gateway.http.harness import TOKEN, Running, commit, event


def report(folder: Path, *, age_seconds: float = 0, **told: Any) -> None:
    at = datetime.now(UTC) - timedelta(seconds=age_seconds)
    (folder / "pipeline.json").write_text(json.dumps({"state": "ok", "at": at.isoformat(), "pid": 1, **told}))


async def health(gateway: Running) -> dict[str, Any]:
    return dict((await gateway.http.get("/v1/health")).json())


async def test_health_follows_the_pipeline(gateway: Running, tmp_path: Path, monkeypatch: Any) -> None:
    assert (await health(gateway))["status"] == "starting"
    report(tmp_path, state="starting")
    assert (await health(gateway))["status"] == "starting"
    report(tmp_path)
    assert (await health(gateway))["status"] == "ok"
    report(tmp_path, state="degraded", failed_cycles=4, reason="main.orders has failed for 4 cycles: no disk")
    told = await health(gateway)
    assert told["status"] == "degraded"
    assert "no disk" in told["reason"]
    assert told["parts"]["pipeline"]["failed_cycles"] == 4
    report(tmp_path, age_seconds=parts.STALE_SECONDS + 5)
    told = await health(gateway)
    assert (told["status"], told["parts"]["pipeline"]["status"]) == ("degraded", "down")
    report(tmp_path, state="stopped")
    assert (await health(gateway))["parts"]["pipeline"]["status"] == "down"
    for damaged in ("", "{", "[]", '{"state": "ok"}', '{"state": "ok", "at": "yesterday"}'):
        (tmp_path / "pipeline.json").write_text(damaged)
        assert (await health(gateway))["status"] == "starting"
    monkeypatch.setattr(parts, "STARTING_SECONDS", 0.0)
    assert (await health(gateway))["status"] == "degraded"


async def test_what_health_tells_to_whom(gateway: Running, tmp_path: Path) -> None:
    """Strangers get the status, holders of a token that of each part, admins the reasons, which name tables."""
    report(tmp_path, state="degraded", failed_cycles=4, reason="main.orders failed: java.lang.OutOfMemoryError")
    reader = await gateway.token("read:nothing")
    for headers in ({"authorization": ""}, {"authorization": "Bearer wrong"}, {"authorization": f"Bearer {TOKEN}x"}):
        answer = await gateway.http.get("/v1/health", headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"status": "degraded"})
    told = (await gateway.http.get("/v1/health", headers=reader)).json()
    assert told["parts"]["pipeline"] == {"status": "degraded"}
    assert told["parts"]["bus"] == {"status": "ok"}
    assert "orders" not in str(told) and "java" not in str(told)
    assert "java.lang.OutOfMemoryError" in (await health(gateway))["reason"]


async def test_the_age_of_the_last_commit(gateway: Running, memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    report(tmp_path)
    assert (await health(gateway))["parts"]["pipeline"]["last_commit_age_seconds"] is None
    await gateway.accept([event("a")])
    await commit(memory_bus, lake)
    await gateway.gateway.directory.refresh()
    assert (await health(gateway))["parts"]["pipeline"]["last_commit_age_seconds"] >= 0


async def test_status_of_tables(gateway: Running, memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    error = {"code": "x", "message": "no disk", "hint": ""}
    report(tmp_path, tables={"main.orders": {"failed_cycles": 2, "last_error": error}})
    await gateway.accept([event("a"), event("b")])
    told = (await gateway.http.get("/v1/status")).json()["tables"]["orders"]
    assert (told["rows"], told["lag"]["events"]) == (0, 2)
    assert told["lag"]["seconds"] >= 0
    assert (told["failed_cycles"], told["last_error"]) == (2, error)
    assert told["head_token"] != told["watermark_token"]
    await commit(memory_bus, lake)
    told = (await gateway.http.get("/v1/status")).json()["tables"]["orders"]
    assert (told["rows"], told["lag"]) == (2, {"events": 0, "seconds": 0.0})
    assert told["head_token"] == told["watermark_token"]
    assert told["last_commit_at"]


async def test_status_of_a_table_whose_stream_is_gone(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await memory_bus.delete(lake.table("main.orders").stream)
    told = (await gateway.http.get("/v1/status")).json()["tables"]["orders"]
    assert told["error"]["code"] in ("bus_replaced", "stream_missing")
    assert told["head_token"] is None


async def test_metrics(gateway: Running, memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> None:
    committed = TableCommitStatus(commits=3, rows=7, commit_seconds=0.5, stage_seconds=0.25, publish_seconds=0.125)
    report(tmp_path, tables={"main.orders": vars(committed)})
    await gateway.accept([event("a"), event("b"), event("a")])
    await gateway.send([event("a", amount=9)])
    await gateway.send([{"id": "x", "data": {"nothing": 1}}])
    answer = await gateway.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["frazil_events_accepted_total", "main.orders"] == 2
    assert found["frazil_events_duplicate_total", "main.orders"] == 1
    assert found["frazil_batches_rejected_total", "id_conflict", "main.orders"] == 1
    assert found["frazil_batches_rejected_total", "bad_events", "main.orders"] == 1
    assert found["frazil_publish_seconds_count", "main.orders"] == 1
    assert found["frazil_publish_events_sum", "main.orders"] == 2
    assert found["frazil_table_lag_events", "main.orders"] == 2
    assert found["frazil_table_rows", "main.orders"] == 0
    assert found["frazil_pipeline_commits_total", "main.orders"] == 3
    assert found["frazil_pipeline_stage_seconds_total", "main.orders"] == 0.25
    assert found["frazil_pipeline_publish_seconds_total", "main.orders"] == 0.125
    assert found["frazil_part_up", "bus"] == found["frazil_part_up", "pipeline"] == 1
    assert found["frazil_http_requests_total", "/v1/tables/{table}/events", "202"] == 1
    assert found["frazil_http_requests_in_flight",] == 1


async def test_the_journal(gateway: Running) -> None:
    await gateway.declare(name="raw.clicks")
    await gateway.http.patch("/v1/tables/orders", json={"owner": "me"})
    await gateway.http.patch("/v1/tables/orders", json={"owner": "me"})
    await gateway.http.delete("/v1/tables/orders")
    await gateway.http.post("/v1/tables/orders/undrop")

    async def kinds(query: str) -> list[str]:
        answer = await gateway.http.get(f"/v1/journal{query}")
        return [entry["kind"] for entry in answer.json()["entries"]]

    assert await kinds("?table=orders") == ["table_undropped", "table_dropped", "table_altered", "table_declared"]
    assert await kinds("?kind=table_declared") == ["table_declared"] * 2
    assert await kinds("?limit=1") == ["table_undropped"]
    assert await kinds("?table=raw.clicks&kind=table_dropped") == []
    for query in ("?limit=0", "?limit=x", "?limit=10001", "?limt=1", "?table=Bad"):
        assert (await gateway.http.get(f"/v1/journal{query}")).status_code == 422


async def test_the_journal_names_the_stream_where_there_is_one(gateway: Running) -> None:
    await gateway.declare(name="users", kind="entity", key=["id"], columns={"id": "long"})
    await gateway.declare(name="loaded", kind="bulk", columns={"id": "long"})
    entries = (await gateway.http.get("/v1/journal?kind=table_declared")).json()["entries"]
    streams = {entry["table"]: entry.get("stream", "") for entry in entries}
    assert streams["main.users"].startswith("main.users.") and streams["main.loaded"] == ""
