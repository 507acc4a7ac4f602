from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

import frazil
from frazil.client import Client
from frazil.errors import FrazilError, InvalidInput, NotFound, TooLarge, Unavailable
from frazil.events import Token
from tests.cli.contract_server import TOKEN, problem
from tests.client.query_server import QueryServer


def test_only_what_was_said_is_sent(client: Client, server: QueryServer) -> None:
    client.sql("SELECT 1")
    assert server.asked == [{"sql": "SELECT 1", "format": "arrow", "freshness": "live"}]


def test_every_word_of_the_contract(client: Client, server: QueryServer) -> None:
    client.sql(
        "SELECT $a + $b",
        {"a": 1, "b": 2},
        freshness="committed",
        min_token="fzt1.x",
        as_of={"notes": datetime(2026, 11, 1, 12, tzinfo=timezone(timedelta(hours=2)))},
        snapshot={"other": 2**62 + 1},
        max_rows=5,
        timeout_s=3,
        when_behind="wait",
    )
    assert server.asked[-1] == {
        "sql": "SELECT $a + $b",
        "parameters": {"a": 1, "b": 2},
        "freshness": "committed",
        "min_token": "fzt1.x",
        "as_of": {"notes": "2026-11-01T12:00:00+02:00"},
        "snapshot": {"other": 2**62 + 1},
        "max_rows": 5,
        "timeout_s": 3,
        "when_behind": "wait",
        "format": "arrow",
    }


def test_parameters_in_order_keep_their_value(client: Client, server: QueryServer) -> None:
    assert client.sql("SELECT ? AS a, ? AS b", (2**53 + 1, None)).rows() == [{"a": 2**53 + 1, "b": None}]
    client.sql("SELECT ?", [Decimal("1.10")])
    assert server.asked[-1]["parameters"] == ["1.10"]
    client.sql("SELECT 1", [])
    assert "parameters" not in server.asked[-1]
    with pytest.raises(InvalidInput, match="not text"):
        client.sql("SELECT ?", "abc")


def test_a_time_has_a_zone(client: Client, server: QueryServer) -> None:
    client.sql("SELECT 1", as_of=datetime(2026, 11, 1, tzinfo=UTC))
    assert server.asked[-1]["as_of"] == "2026-11-01T00:00:00+00:00"
    client.sql("SELECT 1", as_of="2026-11-01T00:00:00Z")
    assert server.asked[-1]["as_of"] == "2026-11-01T00:00:00Z"
    with pytest.raises(InvalidInput) as caught:
        client.sql("SELECT 1", as_of=datetime(2026, 11, 1))
    assert caught.value.code == "time_without_zone"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (422, "bad_sql", InvalidInput),
        (422, "sql_refused", InvalidInput),
        (404, "table_not_found", NotFound),
        (404, "before_first_snapshot", NotFound),
        (410, "snapshot_expired", NotFound),
        (413, "out_of_memory", TooLarge),
        (504, "query_timeout", Unavailable),
        (504, "visibility_timeout", Unavailable),
        (503, "tail_too_long", Unavailable),
    ],
)
def test_errors_are_typed_and_not_asked_again(
    client: Client, server: QueryServer, status: int, code: str, kind: type[FrazilError]
) -> None:
    server.troubles = [problem(status, code, "no", hint="try this", details={"reached": 3})]
    with pytest.raises(kind) as caught:
        client.sql("SELECT 1")
    assert (caught.value.code, caught.value.hint, caught.value.details) == (code, "try this", {"reached": 3})
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "trouble", ["cut", problem(503, "busy", "full", Retry_After="0"), problem(429, "rate_limited", "slow down")]
)
def test_what_passes_is_asked_again(client: Client, server: QueryServer, trouble: Any) -> None:
    server.troubles = [trouble, trouble]
    assert client.sql("SELECT 1 AS a").rows() == [{"a": 1}]
    assert len(server.requests) == 3


def test_an_answer_that_is_not_ours_is_an_error(client: Client, server: QueryServer) -> None:
    server.troubles = [(200, {"hello": "world"}, {}), (200, {"hello": "world"}, {"Frazil-Answer": "[]"})]
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            client.sql("SELECT 1")
        assert caught.value.code == "not_frazil"


def test_the_bytes_of_a_format(client: Client) -> None:
    written = client.sql_written("SELECT 1 AS a, 'x' AS b", format="csv")
    assert written.content == b"a,b\r\n1,x\r\n"
    assert written.facts["row_count"] == 1
    assert json.loads(client.sql_written("SELECT 1 AS a", format="json").content)["rows"] == [[1]]


def test_a_client_can_carry_its_own_writes(server: QueryServer) -> None:
    server.tables["other"] = {"name": "other", "columns": {}}
    with Client(server.url, TOKEN, read_your_writes=True) as client:
        receipt = client.publish("other", [{"data": {}}])
        client.sql("SELECT 1", freshness="committed")
        assert server.asked[-1]["min_token"] == receipt.token
        client.sql("SELECT 1")
        both = Token.parse(receipt.token).merge(Token.of("main.notes", "s", 7))
        assert server.asked[-1]["min_token"] == str(both), "what was read is not taken back either"
        client.sql("SELECT 1", min_token=str(Token.of("main.notes", "s", 9)))
        assert Token.parse(server.asked[-1]["min_token"]).marks["main.notes"].position == 9
        client.sql("SELECT 1", as_of="2026-11-01T00:00:00Z")
        assert "min_token" not in server.asked[-1], "the past is not waited for"
        client.sql("SELECT 1", snapshot={"notes": 5})
        assert "min_token" not in server.asked[-1]
    with frazil.connect(server.url, TOKEN, read_your_writes=True) as client:
        client.sql("SELECT 1")
        assert "min_token" not in server.asked[-1]


def test_without_it_nothing_is_carried(client: Client, server: QueryServer) -> None:
    client.publish("notes", [{"data": {}}])
    client.sql("SELECT 1")
    client.sql("SELECT 1")
    assert "min_token" not in server.asked[-1]


def test_history_changes_and_export(client: Client, server: QueryServer) -> None:
    assert client.history("notes", limit=3)[0]["snapshot_id"] == 2**62 + 1
    assert client.row_history("notes", "a/b ?#ä")["id"] == "a/b ?#ä"
    assert client.changes("notes", 5)["query"] == "from=5"
    assert client.changes("notes", 5, 6, limit=2)["query"] == "from=5&to=6&limit=2"
    assert client.export_hint("notes")["version"] == 3
    with pytest.raises(NotFound):
        client.history("nope")
