from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import frazil
from frazil.client import Client, arrow_batches, encode_json, event_batches, locate
from frazil.errors import (
    BadEvents,
    Conflict,
    Denied,
    FrazilError,
    InvalidInput,
    Misconfigured,
    NotFound,
    TooLarge,
    Unavailable,
    VisibilityTimeout,
)
from frazil.events import Token
from tests.cli.contract_server import TOKEN, ContractServer, problem, serving


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with serving() as state:
        state.tables["t"] = {"name": "t", "columns": {"a": "long"}}
        yield state


@pytest.fixture
def client(server: ContractServer) -> Iterator[Client]:
    with Client(server.url, TOKEN, retry_s=20) as made:
        yield made


def rows_of(server: ContractServer, table: str = "t") -> list[Any]:
    return [json.loads(data) for data in server.events[table].values()]


def test_publish_gives_a_receipt(client: Client, server: ContractServer) -> None:
    receipt = client.publish("t", [{"id": "x", "data": {"a": 1}}, {"data": {"a": 2}}])
    assert (receipt.table, receipt.accepted, receipt.duplicates, receipt.snapshot_id) == ("t", 2, 0, None)
    assert Token.parse(receipt.token)
    assert client.publish("t", [{"id": "x", "data": {"a": 1}}]).duplicates == 1
    assert rows_of(server) == [{"a": 1}, {"a": 2}]


def test_publish_can_wait_for_visibility(client: Client, server: ContractServer) -> None:
    assert client.publish("t", [{"data": {}}], wait=True).snapshot_id == 2**60 + 1
    server.visible = False
    with pytest.raises(VisibilityTimeout) as caught:
        client.publish("t", [{"data": {}}], wait=True, timeout_s=1)
    assert caught.value.details["receipt"]["accepted"] == 1
    assert len(server.requests) == 2, "a time-out is not tried again"


@pytest.mark.parametrize("trouble", ["cut", "cut after", problem(503, "bus_full", "full", Retry_After="0")])
def test_a_try_that_failed_is_repeated_with_the_same_ids(client: Client, server: ContractServer, trouble: Any) -> None:
    server.troubles = [trouble, trouble]
    receipt = client.publish("t", [{"data": {"a": i}} for i in range(3)])
    assert receipt.accepted == 3
    bodies = [body for *_, body in server.requests]
    assert len(bodies) == 3
    assert len(set(bodies)) == 1
    assert rows_of(server) == [{"a": 0}, {"a": 1}, {"a": 2}]


def test_retry_after_is_obeyed(client: Client, server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("frazil.client.transport.time.sleep", pauses.append)
    server.troubles = [problem(503, "bus_full", "full", Retry_After="7"), problem(503, "unavailable", "x")]
    client.publish("t", [{"data": {}}])
    assert pauses[0] >= 7
    assert 0 < pauses[1] < 7


def test_trying_again_ends(server: ContractServer) -> None:
    server.troubles = [problem(503, "bus_full", "full", Retry_After="1")] * 5
    with Client(server.url, TOKEN, retry_s=0.5) as client, pytest.raises(Unavailable) as caught:
        client.publish("t", [{"data": {}}])
    assert caught.value.code == "bus_full"
    assert caught.value.retry_after_seconds == 1
    assert len(server.requests) == 1


def test_a_server_that_is_not_there() -> None:
    with Client("http://127.0.0.1:9", TOKEN, retry_s=0.3) as client, pytest.raises(Unavailable) as caught:
        client.status()
    assert caught.value.code == "unreachable"
    assert "frazil doctor" in caught.value.hint


def test_large_publishes_travel_in_batches(client: Client, server: ContractServer) -> None:
    receipt = client.publish("t", ({"data": {"a": i}} for i in range(12_001)), wait=True)
    assert receipt.accepted == 12_001
    assert receipt.snapshot_id is not None
    assert [body.count(b"\n") for *_, body in server.requests] == [5_000, 5_000, 2_001]
    assert [query.get("wait") for _, _, query, _ in server.requests] == [None, None, ["visible"]]
    assert Token.parse(receipt.token).marks["main.t"].position == 12_001


def test_batches_are_bounded_in_bytes() -> None:
    events = [{"id": str(i), "data": {"a": "x" * 1000}} for i in range(100)]
    bodies = list(event_batches(events, max_bytes=10_000))
    assert all(len(body) <= 10_000 for body, _, _ in bodies)
    assert sum(count for _, count, _ in bodies) == 100


def test_an_error_in_a_later_batch_counts_from_the_beginning(client: Client) -> None:
    events: list[dict[str, Any]] = [{"data": {"a": i}} for i in range(5_010)]
    events[5_003]["data"] = None
    with pytest.raises(BadEvents) as caught:
        client.publish("t", events)
    assert caught.value.details == [{"index": 5_003, "field": "data", "reason": "is null"}]
    assert "first 5,000 events are safe" in str(caught.value)


@pytest.mark.parametrize("events", [[{"a": 1}], [5], [{"id": "x"}]])
def test_what_is_no_event_is_refused_before_it_is_sent(
    client: Client, server: ContractServer, events: list[Any]
) -> None:
    with pytest.raises(InvalidInput, match="event 0") as caught:
        client.publish("t", events)
    assert "publish_rows" in caught.value.hint
    assert server.requests == []


def test_nothing_to_publish_is_an_error(client: Client) -> None:
    with pytest.raises(InvalidInput, match="no events"):
        client.publish("t", [])


def test_rows_with_a_column_or_a_function_as_id(client: Client, server: ContractServer) -> None:
    client.publish_rows("t", [{"a": 1, "k": 10}, {"a": 2, "k": 11}], id="k")
    client.publish_rows("t", [{"a": 3}], id=lambda row: f"row-{row['a']}")
    client.publish_rows("t", [{"a": 4}])
    ids = list(server.events["t"])
    assert ids[:3] == ["10", "11", "row-3"]
    assert UUID(ids[3])


def test_values_are_written_exactly() -> None:
    moment = datetime(2026, 5, 4, 3, 2, 1, 123456, timezone(timedelta(hours=2)))
    text = encode_json(
        {
            "n": 2**53 + 1,
            "d": Decimal("0.10"),
            "e": Decimal("1E+20"),
            "f": 0.1,
            "t": moment,
            "z": datetime(2026, 1, 1, tzinfo=UTC),
            "day": date(2026, 1, 2),
            "b": b"\x00\xff",
            "u": UUID(int=5),
            "s": "né\u2028",
        }
    ).decode()
    assert json.loads(text) == {
        "n": 9007199254740993,
        "d": "0.10",
        "e": "100000000000000000000",
        "f": 0.1,
        "t": "2026-05-04T03:02:01.123456+02:00",
        "z": "2026-01-01T00:00:00+00:00",
        "day": "2026-01-02",
        "b": "AP8=",
        "u": "00000000-0000-0000-0000-000000000005",
        "s": "né\u2028",
    }


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), Decimal("NaN"), datetime(2026, 1, 1), {1, 2}, object(), "\ud800"]
)
def test_what_has_no_exact_form_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_json({"a": value})
    assert caught.value.code == "bad_value"


def test_an_arrow_table_travels_as_arrow_with_ids(client: Client, server: ContractServer) -> None:
    receipt = client.publish("t", pa.table({"a": [1, 2, 3]}))
    assert receipt.accepted == 3
    assert rows_of(server) == [{"a": "1"}, {"a": "2"}, {"a": "3"}]
    client.publish("t", pa.record_batch({"a": [4], "id": ["mine"]}))
    assert "mine" in server.events["t"]


def test_arrow_rows_get_stable_ids_and_keep_their_own() -> None:
    table = pa.table({"a": [1, 2, 3, 4], "id": ["own", None, None, None]})
    bodies = list(arrow_batches(table, max_rows=3, identity="f"))
    ids = [pa.ipc.open_stream(body).read_all().column("id").to_pylist() for body, _, _ in bodies]
    assert ids == [["own", "f-2", "f-3"], ["f-4"]]
    (resumed,) = arrow_batches(table, first_row=3, identity="f")
    assert pa.ipc.open_stream(resumed[0]).read_all().column("id").to_pylist() == ["f-4"]


def test_tables(client: Client, server: ContractServer) -> None:
    made = client.create_table("u", {"a": "long"}, owner="me")
    assert made == {"name": "u", "columns": {"a": "long"}, "owner": "me"}
    assert client.create_table("u", {"a": "long"}, owner="me") == made
    assert client.alter_table("u", add_columns={"b": "string"})["columns"] == {"a": "long", "b": "string"}
    assert client.table("u")["owner"] == "me"
    assert [table["name"] for table in client.tables()] == ["t", "u"]
    client.drop_table("u")
    assert [table["name"] for table in client.tables(dropped=True)] == ["u"]
    with pytest.raises(NotFound) as caught:
        client.table("u")
    assert (caught.value.code, caught.value.hint) == ("table_not_found", "frazil tables list")
    client.undrop_table("u")
    assert client.table("u")["owner"] == "me"
    assert client.repair_table("u", "bus", accept_loss=True)["accept_loss"] is True


def test_a_drop_whose_answer_was_lost_is_not_repeated(client: Client, server: ContractServer) -> None:
    server.troubles = ["cut after"]
    with pytest.raises(Unavailable):
        client.drop_table("t")
    assert len(server.requests) == 1
    assert "t" in server.dropped


def test_the_rest(client: Client) -> None:
    assert client.health()["status"] == "ok"
    assert client.status()["status"] == "ok"
    assert client.journal(table="t", limit=5)[0]["kind"] == "commit"
    assert client.visibility("fzt1.e30", 1)["visible"] is True


@pytest.mark.parametrize(
    ("reply", "kind", "code"),
    [
        (problem(409, "id_reused", "x"), Conflict, "id_reused"),
        (problem(413, "body_too_large", "x"), TooLarge, "body_too_large"),
        (problem(422, "bad_events", "x", details=[]), BadEvents, "bad_events"),
        (problem(403, "forbidden", "x"), Denied, "forbidden"),
        (problem(415, "unsupported_media_type", "x"), FrazilError, "unsupported_media_type"),
        (problem(500, "internal", "x"), FrazilError, "internal"),
        ((500, {"detail": "not ours"}, {}), FrazilError, "internal"),
    ],
)
def test_errors_come_back_as_what_they_are(
    client: Client, server: ContractServer, reply: Any, kind: type[FrazilError], code: str
) -> None:
    server.troubles = [reply]
    with pytest.raises(kind) as caught:
        client.status()
    assert caught.value.code == code


def test_a_wrong_token(server: ContractServer) -> None:
    with Client(server.url, "frz_wrong") as client, pytest.raises(Denied):
        client.tables()


def test_the_token_does_not_show(client: Client) -> None:
    assert TOKEN not in repr(client)


def test_threads_may_share_a_client(client: Client, server: ContractServer) -> None:
    threads = [
        threading.Thread(target=lambda n=n: client.publish("t", [{"id": f"{n}", "data": {"a": n}}])) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(server.events["t"]) == 8


def test_connect_finds_address_and_token(
    server: ContractServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("FRAZIL_URL", "FRAZIL_TOKEN", "FRAZIL_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(Unavailable) as caught:
        frazil.connect()
    assert caught.value.code == "not_running"
    data = tmp_path / "frazil-data"
    (data / "run").mkdir(parents=True)
    (data / "run" / "supervisor.json").write_text(json.dumps({"url": server.url}))
    with pytest.raises(Misconfigured) as missing:
        frazil.connect()
    assert missing.value.code == "no_token"
    (data / "admin.token").write_text(f"{TOKEN}\n")
    (data / "admin.token").chmod(0o644)
    with pytest.raises(Misconfigured, match="other users can read") as wide:
        frazil.connect()
    assert wide.value.code == "no_token" and "chmod 600" in wide.value.hint
    (data / "admin.token").chmod(0o600)
    with frazil.connect() as client:
        assert client.status()["status"] == "ok"
    monkeypatch.setenv("FRAZIL_URL", "http://elsewhere:1")
    monkeypatch.setenv("FRAZIL_TOKEN", "other")
    assert locate() == ("http://elsewhere:1", "other")
    assert locate(server.url, TOKEN) == (server.url, TOKEN)
    with pytest.raises(Misconfigured):
        frazil.connect("nonsense", "x")
