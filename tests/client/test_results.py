from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from frazil.client import Answer, Client, Cut
from frazil.errors import InvalidInput, Misconfigured
from frazil.events import Token
from tests.client.query_server import QueryServer


def test_values_keep_their_types_and_all_their_digits(client: Client) -> None:
    answer = client.sql(
        """SELECT 9007199254740993::BIGINT AS big, 12345678901234567890.123456789012345678::DECIMAL(38,18) AS exact,
                  TIMESTAMPTZ '2026-11-01 10:00:00.000002+02' AS at, encode('ä') AS raw, [1, NULL] AS list,
                  {'a': 1} AS struct, NULL::INTEGER AS nothing"""
    )
    (row,) = answer.rows()
    assert row["big"] == 9007199254740993
    assert row["exact"] == Decimal("12345678901234567890.123456789012345678")
    assert row["at"] == datetime(2026, 11, 1, 8, 0, 0, 2, tzinfo=UTC)
    assert row["raw"] == "ä".encode()
    assert row["list"] == [1, None]
    assert row["struct"] == {"a": 1}
    assert row["nothing"] is None
    assert answer.arrow().schema.field("exact").type == pa.decimal128(38, 18)
    assert list(answer) == answer.rows()
    assert len(answer) == answer.row_count == 1
    assert answer.columns == ["big", "exact", "at", "raw", "list", "struct", "nothing"]


def test_a_frame_keeps_large_integers_beside_a_null(client: Client) -> None:
    frame = client.sql(
        "SELECT * FROM (VALUES (9007199254740993::BIGINT, 1.50::DECIMAL(9,2)), (NULL, NULL)) t(i, d)"
    ).df()
    assert str(frame["i"].dtype) == "Int64"
    assert frame["i"][0] == 9007199254740993 and frame["i"].isna()[1]
    assert frame["d"][0] == Decimal("1.50")


def test_an_answer_says_what_it_was_read_from(client: Client, server: QueryServer) -> None:
    answer = client.sql("SELECT * FROM range(5)", max_rows=3)
    assert (answer.truncated, answer.row_count, answer.freshness) == (True, 3, "live")
    assert (answer.elapsed_ms, answer.queued_ms) == (1.5, 0.25)
    token = str(Token.of("main.notes", "s", 7))
    assert answer.token == token
    assert answer.snapshots == {"notes": Cut(2**62 + 1, datetime(2026, 11, 1, 10, tzinfo=UTC), token, token, 12.5, 3)}
    assert "_stream" not in repr(answer), "an answer of a gigabyte is not printed by accident"


def test_an_empty_answer_has_its_columns(client: Client) -> None:
    answer = client.sql("SELECT 1 AS a WHERE false")
    assert (answer.columns, answer.rows(), answer.df().columns.to_list()) == (["a"], [], ["a"])


def test_a_table_without_a_snapshot(client: Client) -> None:
    assert Cut.of({"snapshot_id": None, "committed_at": None, "age_seconds": 0.0, "live_rows": 4}).committed_at is None


def test_two_columns_of_one_name_are_not_lost_in_silence(client: Client) -> None:
    answer = client.sql("SELECT 1 AS a, 2 AS b")
    answer = Answer.of({"row_count": 1}, _renamed(answer.arrow(), ["a", "a"]))
    assert answer.arrow().column_names == ["a", "a"]
    with pytest.raises(InvalidInput, match="two columns are named 'a'"):
        answer.rows()


def _renamed(table: pa.Table, names: list[str]) -> bytes:
    sink = pa.BufferOutputStream()
    renamed = table.rename_columns(names)
    with pa.ipc.new_stream(sink, renamed.schema) as writer:
        writer.write_table(renamed)
    return bytes(sink.getvalue().to_pybytes())


def test_without_pandas_the_error_says_what_to_do(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client.sql("SELECT 1 AS a")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Misconfigured) as caught:
        answer.df()
    assert caught.value.code == "no_pandas" and "pip install pandas" in caught.value.hint
    assert answer.rows() == [{"a": 1}]


def test_a_client_starts_without_arrow() -> None:
    """Half a second that a program which only publishes need not wait for."""
    code = "import frazil.client, sys; print([m for m in ('pyarrow', 'pandas', 'duckdb') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
