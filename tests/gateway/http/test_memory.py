"""Bodies that unpack to a thousand times their size: the gateway stays in its budget, and others are served."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pydantic import ByteSize

from frazil.access import AccessSettings
from frazil.bus.memory import MemoryBus
from frazil.events.decoding import decode_events
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import NDJSON, event
from tests.gateway.http.sockets import on_a_port

MB = 1 << 20
BUDGET = 640 * MB
BOMBS = 40


async def test_bombs_of_one_token_stay_within_the_budget(lake: Lake, tmp_path: Path) -> None:
    """59 KB each, 60 MB unpacked: all at once they would be several gigabytes."""
    bomb = gzip.compress(b'{"id": "b", "data": {"item": "%s"}}\n' % (b"x" * 900_000) * 66)
    assert len(bomb) < 100_000
    access = AccessSettings(token_memory=ByteSize(BUDGET * 3 // 4))
    bus = MemoryBus(max_bytes=256 * MB)
    async with on_a_port(bus, lake, tmp_path, access=access, max_memory_bytes=BUDGET) as port:
        await port.declare()
        greedy, others = await port.token("ingest:orders"), await port.token("ingest:orders")
        url = "/v1/tables/orders/events"
        packed = {**greedy, **NDJSON, "content-encoding": "gzip"}
        quiet = await port.http.post(url, content=bomb, headers=packed)
        assert quiet.status_code == 202, "one of them is a body like others"
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _status("VmRSS")
        async with httpx.AsyncClient(base_url=port.http.base_url, timeout=120) as attacker:
            attack = asyncio.gather(*(attacker.post(url, content=bomb, headers=packed) for _ in range(BOMBS)))
            served = 0
            while not attack.done():
                sent = await port.http.post(url, json={"events": [event(f"s{served}")]}, headers=others)
                assert sent.status_code == 202, sent.text
                served += 1
            answers = await attack
        grown = _status("VmHWM") - before
        assert served > 0
        codes = Counter(answer.status_code for answer in answers)
        assert codes[202] >= 1 and codes[202] + codes[429] == BOMBS, codes
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["error"]["code"] == "too_many_bytes_in_flight"
        assert int(refused.headers["retry-after"]) >= 1
        assert grown <= BUDGET, f"{grown / MB:.0f} MB"
        assert port.gateway.quotas.used("bytes") == 0
        assert (await port.http.post(url, content=bomb, headers=packed)).status_code == 202


async def test_a_small_body_that_becomes_large_is_not_decoded_in_the_loop(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text in a dictionary, 30,000 rows that name it: under a kilobyte, and a second of work."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 30_000, pa.int32()), pa.array(['"' + "x" * 300 + '"']))
    rows = pa.table({"extra": texts})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    body = sink.getvalue().to_pybytes()
    assert len(body) < 2_000
    in_the_loop: dict[bytes, bool] = {}

    def noting(*given: Any, **named: Any) -> Any:
        decoded = decode_events(*given, **named)
        in_the_loop[given[0]] = threading.current_thread() is threading.main_thread()
        return decoded

    monkeypatch.setattr("frazil.gateway.gateway.decode_events", noting)
    async with on_a_port(MemoryBus(), lake, tmp_path) as port:
        await port.declare(columns={"extra": "json"})
        headers = {**await port.token("ingest:orders"), "content-type": "application/vnd.apache.arrow.stream"}
        sent = await port.http.post("/v1/tables/orders/events", content=body, headers=headers)
        assert (sent.status_code, sent.json().get("accepted")) == (202, 30_000), sent.text
        assert in_the_loop[body] is False
        usual = b'{"events": [{"data": {}}]}'
        headers["content-type"] = "application/json"
        assert (await port.http.post("/v1/tables/orders/events", content=usual, headers=headers)).status_code == 202
        assert in_the_loop[usual] is True, "a usual body needs no thread"
        assert port.gateway.quotas.used("bytes") == 0


async def test_unpacking_stops_where_the_budget_ends(lake: Lake, tmp_path: Path) -> None:
    """A body that would be allowed, but not with what this gateway has: it is told so, and nothing stays taken."""
    bomb = gzip.compress(b" " * (32 * MB))
    access = AccessSettings(token_memory=ByteSize(8 * MB))
    async with on_a_port(MemoryBus(max_bytes=64 * MB), lake, tmp_path, access=access) as port:
        await port.declare()
        greedy = await port.token("ingest:orders")
        packed = {**greedy, **NDJSON, "content-encoding": "gzip"}
        answer = await port.http.post("/v1/tables/orders/events", content=bomb, headers=packed)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert port.gateway.quotas.used("bytes") == 0


async def test_small_requests_count_what_their_json_becomes(lake: Lake, tmp_path: Path) -> None:
    """A megabyte of empty objects is thirty of them as objects of Python."""
    async with on_a_port(MemoryBus(max_bytes=64 * MB), lake, tmp_path, max_memory_bytes=8 * MB) as port:
        many = b'{"name": "t", "columns": [' + b"{}," * 300_000 + b"{}]}"
        answer = await port.http.post("/v1/tables", content=many)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert port.gateway.quotas.used("bytes") == 0
        await port.declare()


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
