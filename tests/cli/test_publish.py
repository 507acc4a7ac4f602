from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.client import Client
from tests.cli.conftest import Run
from tests.cli.contract_server import ContractServer, problem


def lines(count: int, *, first: int = 0) -> str:
    return "".join(f'{{"data": {{"a": {i}}}}}\n' for i in range(first, first + count))


def kept(server: ContractServer) -> list[Any]:
    return [json.loads(data)["a"] for data in server.events.get("t", {}).values()]


def test_a_file_and_its_report(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(12_000))
    ran = run("publish", "t", "e.ndjson", "--wait")
    assert ran.code == 0
    assert ran.out.startswith("12,000 events in 3 batches")
    assert "all visible" in ran.out
    assert "token fzt1." in ran.out
    assert kept(server) == list(range(12_000))


def test_twice_is_once(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(10))
    run("publish", "t", "e.ndjson")
    again = json.loads(run("publish", "t", "e.ndjson", "--json").out)
    assert (again["events"], again["skipped"]) == (0, 10)
    over = json.loads(run("publish", "t", "e.ndjson", "--restart", "--json").out)
    assert (over["events"], over["duplicates"], over["skipped"]) == (10, 10, 0)
    assert kept(server) == list(range(10))


def test_a_file_that_has_grown_goes_on(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(10))
    run("publish", "t", "e.ndjson")
    with Path("e.ndjson").open("a") as file:
        file.write(lines(5, first=10))
    grown = json.loads(run("publish", "t", "e.ndjson", "--json").out)
    assert (grown["events"], grown["duplicates"], grown["skipped"]) == (5, 0, 10)
    assert kept(server) == list(range(15))


def test_another_file_under_the_same_name_begins_anew(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(10))
    run("publish", "t", "e.ndjson")
    Path("e.ndjson").write_text(lines(10, first=100))
    other = json.loads(run("publish", "t", "e.ndjson", "--json").out)
    assert (other["events"], other["duplicates"]) == (10, 0)


def test_equal_lines_of_two_files_are_different_events(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(3))
    Path("f.ndjson").write_text(lines(3))
    run("publish", "t", "e.ndjson")
    assert json.loads(run("publish", "t", "f.ndjson", "--json").out)["duplicates"] == 0
    assert len(kept(server)) == 6


def test_a_run_that_broke_off_goes_on_where_it_was(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(12_000))
    ok: Any = ""
    server.troubles = [ok, problem(500, "internal", "broken")]
    ran = run("publish", "t", "e.ndjson")
    assert ran.code == 1
    assert "broken (the 5,000 events before are safe)" in ran.err
    ran = run("publish", "t", "e.ndjson")
    assert "5,000 events were published by an earlier run" in ran.out
    assert ran.out.splitlines()[1].startswith("7,000 events in 2 batches")
    assert kept(server) == list(range(12_000))


def test_a_lost_answer_is_asked_for_again(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(100))
    server.troubles = ["cut after", "cut", problem(503, "bus_full", "full", Retry_After="0")]
    report = json.loads(run("publish", "t", "e.ndjson", "--json").out)
    assert (report["events"], report["batches"]) == (100, 1)
    assert kept(server) == list(range(100))


def test_ctrl_c_is_safe(run: Run, server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("e.ndjson").write_text(lines(12_000))
    original = Client.publish_body

    def interrupted(self: Client, *arguments: Any, **more: Any) -> Any:
        if len(server.requests) == 1:
            raise KeyboardInterrupt
        return original(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "publish_body", interrupted)
        ran = run("publish", "t", "e.ndjson")
    assert ran.code == 130
    assert "stopped after 5,000 events" in ran.err
    assert run("publish", "t", "e.ndjson").code == 0
    assert kept(server) == list(range(12_000))


def test_numbers_travel_as_they_stand(run: Run, server: ContractServer) -> None:
    number = "1234567890123456789.1234567890123456789"
    Path("e.ndjson").write_text(
        f'{{"data": {{"a": {number}, "b": 0.10}}}}\n  {{ "id": "own", "data": {{"a": 1e2}} }}\n'
    )
    Path("p.json").write_text(f'[\n {{"a": {number},\n "b": "x\\n"}}\n]')
    run("publish", "t", "e.ndjson")
    run("publish", "t", "p.json", "--data-only")
    first, second = (body for *_, body in server.requests)
    events = [json.loads(line, parse_float=Decimal) for line in first.splitlines()]
    assert events[0]["data"] == {"a": Decimal(number), "b": Decimal("0.10")}
    assert str(events[0]["data"]["b"]) == "0.10"
    assert events[1] == {"id": "own", "data": {"a": Decimal("1e2")}}
    (plain,) = (json.loads(line, parse_float=Decimal) for line in second.splitlines())
    assert plain["data"] == {"a": Decimal(number), "b": "x\n"}


@pytest.mark.parametrize(
    "content", ['[{"data": {"a": 1}}, {"data": {"a": 2}}]', '{"events": [{"data": {"a": 1}}, {"data": {"a": 2}}]}']
)
def test_json_files(run: Run, server: ContractServer, content: str) -> None:
    Path("e.json").write_text(content)
    run("publish", "t", "e.json")
    assert kept(server) == [1, 2]
    assert json.loads(run("publish", "t", "e.json", "--json").out)["skipped"] == 2


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files(run: Run, server: ContractServer, kind: str) -> None:
    table = pa.table({"a": [1, 2, 3]})
    writer = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with writer("e.arrow", table.schema) as out:
        out.write_table(table)
    assert run("publish", "t", "e.arrow").code == 0
    assert kept(server) == ["1", "2", "3"]
    assert json.loads(run("publish", "t", "e.arrow", "--restart", "--json").out)["duplicates"] == 3


def test_standard_input(run: Run, server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def piped() -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(3).encode())))

    piped()
    run("publish", "t", "-")
    piped()
    assert json.loads(run("publish", "t", "-", "--json").out)["duplicates"] == 0, "nothing says it is the same input"
    piped()
    run("publish", "t", "-", "--name", "nightly")
    piped()
    assert json.loads(run("publish", "t", "-", "--name", "nightly", "--json").out)["duplicates"] == 3


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("e.ndjson", '{"data": {"a": 1}}\n{"data": \n', "line 2: it is not a JSON object"),
        ("e.ndjson", '\n{"a": 1}\n', "line 2: it has no `data`; add --data-only for plain objects"),
        ("e.ndjson", '{"id": null, "data": {}}\n', "line 1: its id is null"),
        ("e.ndjson", "[1]\n", "line 1: it is not a JSON object"),
        ("e.json", "[1", "e.json is not JSON"),
        ("e.arrow", "nonsense", "e.arrow is not Arrow"),
        ("e.csv", "a,b", "--format"),
    ],
)
def test_files_that_are_wrong(run: Run, server: ContractServer, name: str, content: str, word: str) -> None:
    Path(name).write_text(content)
    ran = run("publish", "t", name)
    assert ran.code == 1
    assert word in ran.err
    assert server.events.get("t", {}) == {}


def test_a_file_that_is_not_there(run: Run, server: ContractServer) -> None:
    assert "there is no file" in run("publish", "t", "nope.ndjson").err


def test_bad_events_are_told_by_line(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text('\n{"data": {"a": 1}}\n\n{"data": null}\n')
    ran = run("publish", "t", "e.ndjson", "--json")
    assert ran.code == 1
    assert "in line 4 field data: is null" in ran.err
    assert json.loads(ran.out)["error"]["details"][0]["line"] == 4
    Path("e.ndjson").write_text('\n{"data": {"a": 1}}\n\n{"data": {"a": 2}}\n')
    assert run("publish", "t", "e.ndjson").code == 0
    assert kept(server) == [1, 2]


def test_an_empty_file_is_nothing(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text("\n\n")
    assert run("publish", "t", "e.ndjson").out.startswith("0 events")


def test_waiting_ends(run: Run, server: ContractServer) -> None:
    Path("e.ndjson").write_text(lines(1))
    server.visible = False
    ran = run("publish", "t", "e.ndjson", "--wait", "--timeout-s", "0.2")
    assert ran.code == 3
    assert "1 events are safe" in ran.err
