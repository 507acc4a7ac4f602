"""Memory of decoding: what is said before is not less than what is taken, for usual bodies and for hostile ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import FrazilError, TooLarge
from frazil.events.declaration import parse_table
from frazil.events.decoding import NDJSON, Limits, decode_events
from frazil.events.decoding.body import JSON
from tests.events.bodies import ARROW, decode, stream, table

MB = 1 << 20
# What the interpreter, its allocator and a thread take whatever is decoded.
SLACK = 16 * MB
FLAT = {"a": "string", "b": "long", "c": "double", "d": "timestamp", "e": "string", "f": "bool"}
MOMENT = "2024-01-01T00:00:00Z"


def _flat(count: int) -> bytes:
    data = {"a": "some text of a row", "b": 123456, "c": 1.5, "d": MOMENT, "e": "x" * 20, "f": True}
    return b"\n".join(json.dumps({"id": str(at), "ts": MOMENT, "data": data}).encode() for at in range(count))


def _nested(inner: bytes) -> bytes:
    one = b'{"data":{"v":[' + inner * (400_000 // len(inner)) + inner.rstrip(b",") + b"]}}"
    return b"\n".join([one] * 3)


def _vectors(width: int, rows: int) -> pa.Table:
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array([0.5] * (width * rows), pa.float32()), width)})


Case = Callable[[], tuple[dict[str, Any], str, bytes]]
CASES: dict[str, Case] = {
    "usual lines": lambda: ({"columns": FLAT}, NDJSON[0], _flat(15_000)),
    "usual lines, exactly": lambda: ({"columns": FLAT}, NDJSON[0], _flat(15_000) + b"\n \n"),
    "usual object": lambda: ({"columns": FLAT}, JSON, b'{"events":[' + _flat(15_000).replace(b"\n", b",") + b"]}"),
    "a rare character": lambda: (
        {"columns": FLAT},
        JSON,
        b'{"events":[' + _flat(15_000).replace(b"\n", b",").replace(b"some", "\U0001f600".encode(), 1) + b" ]}",
    ),
    "long texts": lambda: (
        {"columns": {"a": "string"}},
        NDJSON[0],
        b"\n".join([b'{"data":{"a":"' + b"x" * 900_000 + b'"}}'] * 12),
    ),
    "events without a value": lambda: ({"columns": {"a": "long"}}, NDJSON[0], b'{"data":{}}\n' * 120_000),
    "many columns": lambda: (
        {"columns": {f"c{at}": "long" for at in range(200)}},
        NDJSON[0],
        b'{"data":{}}\n' * 30_000,
    ),
    "blank lines": lambda: ({"columns": FLAT}, NDJSON[0], b"\n" * (8 * MB) + _flat(1)),
    "numbers in lists": lambda: ({"columns": {"v": "list<double>"}}, NDJSON[0], _nested(b"1,")),
    "lists in lists": lambda: ({"columns": {"v": "list<list<long>>"}}, NDJSON[0], _nested(b"[],")),
    "objects in lists": lambda: ({"columns": {"v": "list<struct<a:long>>"}}, NDJSON[0], _nested(b"{},")),
    "texts in lists": lambda: ({"columns": {"v": "list<string>"}}, NDJSON[0], _nested(b'"ab",')),
    "new columns": lambda: (
        {"columns": {"q": "long"}, "unknown_fields": "evolve"},
        NDJSON[0],
        b"\n".join([b'{"data":{' + b",".join(b'"a%x":1' % at for at in range(900)) + b"}}"] * 400),
    ),
    "vectors in Arrow": lambda: ({"columns": {"v": "list<float>"}}, ARROW, stream(_vectors(256, 16_000))),
    "vectors as JSON": lambda: ({"columns": {"v": "json"}}, ARROW, stream(_vectors(256, 2_000), "zstd")),
    "a dictionary": lambda: (
        {"columns": {"a": "string"}},
        ARROW,
        stream(
            pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0] * 30_000, pa.int8()), pa.array(["x" * 1000]))})
        ),
    ),
}


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[int, int]]:
    """Of each case what was said and what was taken, in a process of its own, whose peak is that of this body."""
    run = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=500, cwd=Path.cwd())
    assert run.returncode == 0, run.stderr[-2000:]
    return {name: tuple(numbers) for name, numbers in map(json.loads, run.stdout.splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_taken_than_was_said(name: str, measured: dict[str, tuple[int, int]]) -> None:
    said, taken = measured[name]
    assert taken <= said + SLACK, f"{taken / MB:.0f} MB were taken, {said / MB:.0f} MB were said"


def test_the_budget_stops_a_body_before_it_is_decoded() -> None:
    asked: list[int] = []

    def refuse(size: int) -> None:
        asked.append(size)
        raise TooLarge("no room")

    wide = parse_table({"name": "t", "columns": {f"c{at}": "long" for at in range(1000)}})
    for body, kind in ((b'{"data":{}}\n' * 100_000, NDJSON[0]), (stream(pa.table({"c0": [1] * 100_000})), ARROW)):
        with pytest.raises(TooLarge, match="no room"):
            decode_events(body, kind, wide, received_at=datetime.now(UTC), limits=Limits(claim=refuse))
    assert min(asked) > 1000 * len(body) // 10


def test_nulls_are_counted_though_they_take_no_bytes() -> None:
    """Two billion values in a few hundred bytes: a list of nulls has no buffer for them."""
    many = (1 << 31) - 2
    nulls = pa.FixedSizeListArray.from_arrays(pa.nulls(many), many // 2)
    body = stream(pa.table({"v": nulls}))
    assert len(body) < 2000
    for declared in ("json", "list<long>"):
        with pytest.raises(TooLarge) as caught:
            decode(body, table({"v": declared}), content_type=ARROW)
        assert caught.value.code == "body_too_large"


def test_dictionary_columns_share_one_limit() -> None:
    """Each of them would fit; together they are forty times a body."""
    text = pa.array(["x" * 1000])
    columns = {f"c{at}": pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), text) for at in range(40)}
    limits = Limits(max_body_bytes=1 << 20)
    body = stream(pa.table(columns), "zstd")
    assert len(body) < limits.max_body_bytes
    with pytest.raises(FrazilError, match="larger than the limit"):
        decode(body, table({name: "string" for name in columns}), content_type=ARROW, limits=limits)


def test_deltas_of_a_dictionary_count_for_each_batch_that_follows_them() -> None:
    """Every batch gets its own copy of all that the deltas have brought until then."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("s", pa.dictionary(pa.int32(), pa.string()))])
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    words = [f"{at:0>1000}" for at in range(300)]
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for count in range(1, len(words) + 1):
            values = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(words[:count]))
            writer.write_batch(pa.record_batch([values], schema=schema))
    body = sink.getvalue().to_pybytes()
    assert len(body) < 1 << 20
    with pytest.raises(TooLarge):
        decode(body, table({"s": "string"}), content_type=ARROW, limits=Limits(max_body_bytes=8 << 20))
    decoded = decode(body, table({"s": "string"}), content_type=ARROW)
    assert set(decoded.batch.column("s").to_pylist()) == {words[0]}


def _measured(name: str) -> tuple[int, int]:
    """What was said, and by how much the process grew."""
    declared, kind, body = CASES[name]()
    claims: list[int] = []
    spec = parse_table({"name": "t", **declared})
    warm = parse_table({"name": "w", "columns": {"a": "long"}})
    decode_events(b'{"data":{}}', NDJSON[0], warm, received_at=datetime.now(UTC), limits=Limits())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    decode_events(body, kind, spec, received_at=datetime.now(UTC), limits=Limits(claim=claims.append))
    return sum(claims), _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    # Forked: the imports are paid for once, and each case finds the memory as it was before all of them.
    for each in CASES:
        if (child := os.fork()) == 0:
            print(json.dumps([each, _measured(each)]), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, each
