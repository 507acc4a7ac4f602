"""What the benchmarks load with: bytes of the promised size, that the product takes and that count once."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.control import plain_nats
from benchmarks.producers import read_bodies
from benchmarks.report import figures_on_stdout, percentile, rounded
from frazil.events import decode


def test_a_line_has_200_bytes_and_an_id_of_its_own() -> None:
    body = load.ndjson("ab12", 0, 500) + load.ndjson("ab12", 500, 500)
    lines = body.splitlines(keepends=True)
    assert {len(line) for line in lines} == {load.EVENT_BYTES}
    assert len({json.loads(line)["id"] for line in lines}) == 1000
    assert load.ndjson("ab12", 0, 500) != load.ndjson("ab13", 0, 500)


def test_both_load_generators_read_the_same_bodies(tmp_path: Path) -> None:
    path = tmp_path / "bodies"
    assert load.write_bodies(path, "ab12", 1200) == 3
    expected = list(load.bodies("ab12", 1200))
    assert [body.count(b"\n") for body in expected] == [500, 500, 200]
    assert read_bodies(path) == plain_nats._read_bodies(path) == expected


def test_messages_hold_all_events_in_their_order() -> None:
    spec = load.spec("t")
    sent = load.messages(spec, "ab12", 10, per_message=4)
    assert [decode(message.body).num_rows for message in sent] == [4, 4, 2]
    rows = load.as_rows(spec, sent)
    assert rows["_id"].to_pylist() == [f"ab12-{number:012d}" for number in range(10)]
    assert rows["_seq"].to_pylist() == sorted(rows["_seq"].to_pylist())


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile(share: float, expected: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == expected


def test_figures_have_four_digits() -> None:
    assert rounded({"a": 123456.7, "b": [0.123456], "c": 123456}) == {"a": 123500.0, "b": [0.1235], "c": 123456}


def test_only_the_figures_are_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with figures_on_stdout() as out:
        os.write(1, b"noise of a child\n")
        assert isinstance(out, io.TextIOBase)
        print("figure", file=out, flush=True)
    os.write(1, b"after\n")
    captured = capfd.readouterr()
    assert captured.out == "figure\nafter\n" and captured.err == "noise of a child\n"
