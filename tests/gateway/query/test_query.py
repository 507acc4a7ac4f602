"""POST /v1/query: freshness, snapshots, formats and refusals, through real workers."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from frazil.events import Token
from frazil.serving.sql import QueryPool, QuerySettings
from tests.gateway.http.harness import running
from tests.gateway.query.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
COLUMNS = {"item": "string", "amount": "long"}


async def test_a_write_is_readable_at_once_and_told(house: House) -> None:
    table = await house.table(COLUMNS)
    token = await house.send(table, {"item": "ice", "amount": 2}, {"item": "snow", "amount": 3})
    answer = (await house.ask(f"SELECT item, amount FROM {table} ORDER BY amount")).json()
    assert answer["columns"] == [{"name": "item", "type": "VARCHAR"}, {"name": "amount", "type": "BIGINT"}]
    assert answer["rows"] == [["ice", 2], ["snow", 3]]
    assert (answer["row_count"], answer["truncated"], answer["freshness"]) == (2, False, "live")
    told = answer["snapshots"][table]
    assert told["snapshot_id"] is None and told["live_rows"] == 2
    assert answer["token"] == told["token"]
    reached, wanted = (Token.parse(text).marks[f"main.{table}"] for text in (answer["token"], token))
    assert reached.stream == wanted.stream and reached.position >= wanted.position


async def test_committed_reads_the_snapshot_alone(house: House) -> None:
    table = await house.table(COLUMNS)
    await house.send(table, {"item": "ice", "amount": 1})
    snapshot = await house.commit(table)
    token = await house.send(table, {"item": "snow", "amount": 2})
    committed = (await house.ask(f"SELECT item FROM {table}", freshness="committed")).json()
    assert committed["rows"] == [["ice"]]
    assert committed["snapshots"][table]["snapshot_id"] == snapshot
    assert committed["snapshots"][table]["age_seconds"] >= 0
    assert committed["token"] == committed["snapshots"][table]["watermark"]
    assert await house.rows(f"SELECT item FROM {table} ORDER BY 1") == [["ice"], ["snow"]]
    # A token of the tail is not reached by the snapshot, and the error says how far it is.
    answer = await house.ask(f"SELECT 1 FROM {table}", freshness="committed", min_token=token, timeout_s=0.3)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "visibility_timeout")
    details = answer.json()["error"]["details"]
    assert details["reached"] == committed["token"] and details["wanted"] == token
    assert details["messages_behind"] == 1
    await house.commit(table)
    assert await house.rows(f"SELECT count(*) FROM {table}", freshness="committed", min_token=token) == [[2]]


async def test_what_was_left_on_the_bus_is_read_from_the_table_once_it_is_committed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than fits into memory was taken in, and is committed and trimmed before anybody asks."""
    monkeypatch.setattr(house.running.gateway.writers.tail_memory, "free_bytes", 0)
    table = await house.table(COLUMNS)
    for amount in range(3):
        await house.send(table, {"item": "ice", "amount": amount})
    await house.commit(table)
    await house.send(table, {"item": "snow", "amount": 3})
    for _ in range(2):
        answer = (await house.ask(f"SELECT count(*) FROM {table}")).json()
        assert (answer["rows"], answer["snapshots"][table]["live_rows"]) == ([[4]], 1)
    await house.commit(table)
    assert await house.rows(f"SELECT count(*) FROM {table}") == [[4]]


async def test_what_is_lost_from_the_bus_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.running.gateway.writers.tail_memory, "free_bytes", 0)
    table = await house.table(COLUMNS)
    for amount in range(3):
        await house.send(table, {"item": "ice", "amount": amount})
    stream = await house.bus.open(house.lake.table(f"main.{table}").stream)
    await stream.trim(3)
    assert await house.refused(f"SELECT count(*) FROM {table}") == (500, "bus_gap")


async def test_min_token_waits_for_the_commit(house: House) -> None:
    table = await house.table(COLUMNS)
    token = await house.send(table, {"item": "ice", "amount": 1})
    waiting = asyncio.create_task(
        house.rows(f"SELECT item FROM {table}", freshness="committed", min_token=token, timeout_s=120)
    )
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await house.commit(table)
    assert await waiting == [["ice"]]


async def test_tokens_of_several_tables_merge(house: House) -> None:
    first, second = await house.table(COLUMNS), await house.table(COLUMNS)
    token = Token.parse(await house.send(first, {"item": "a", "amount": 1}))
    token = token.merge(Token.parse(await house.send(second, {"item": "a", "amount": 2})))
    answer = await house.ask(
        f"SELECT f.amount, s.amount FROM {first} f JOIN {second} s USING (item)", min_token=str(token)
    )
    assert answer.json()["rows"] == [[1, 2]]
    assert set(answer.json()["snapshots"]) == {first, second}
    assert Token.parse(answer.json()["token"]).marks.keys() == {f"main.{first}", f"main.{second}"}


async def test_a_token_from_elsewhere_is_refused(house: House) -> None:
    table = await house.table(COLUMNS)
    token = Token.of(f"main.{table}", "another-stream", 5)
    assert await house.refused(f"FROM {table}", min_token=str(token)) == (409, "token_of_another_stream")
    assert await house.refused(f"FROM {table}", min_token="fzt1.rubbish") == (422, "bad_token")
    # A place that the stream has not come to is of no receipt: no waiting would help.
    known = Token.parse(await house.send(table, {"item": "a", "amount": 1})).marks[f"main.{table}"]
    future = str(Token.of(f"main.{table}", known.stream, known.position + (5 << 20)))
    assert await house.refused(f"FROM {table}", min_token=future, timeout_s=60) == (409, "token_beyond_head")


async def test_time_travel(house: House) -> None:
    table = await house.table(COLUMNS)
    before = datetime.now(UTC) - timedelta(seconds=5)
    await house.send(table, {"item": "a", "amount": 1})
    first = await house.commit(table)
    between = datetime.now(UTC)
    await asyncio.sleep(0.05)
    await house.send(table, {"item": "b", "amount": 2})
    second = await house.commit(table)
    await house.send(table, {"item": "c", "amount": 3})
    count = f"SELECT count(*) FROM {table}"
    assert await house.rows(count) == [[3]]
    assert await house.rows(count, snapshot={table: first}) == [[1]]
    assert await house.rows(count, snapshot={f"main.{table}": str(second)}) == [[2]]
    assert await house.rows(count, as_of=between.isoformat()) == [[1]]
    assert await house.rows(count, as_of={table: between.isoformat()}) == [[1]]
    for form in (
        f"FOR VERSION AS OF {first}",
        f"FOR TIMESTAMP AS OF '{between.isoformat()}'",
        f"AT (VERSION => {first})",
    ):
        assert await house.rows(f"SELECT count(*) FROM {table} {form}") == [[1]], form
    both = (
        await house.ask(
            f"SELECT (SELECT count(*) FROM {table}), (SELECT count(*) FROM {table} o AT (VERSION => {first})), "
            "count(*) "
            f"FROM {table} AT (VERSION => {second})"
        )
    ).json()
    assert both["rows"] == [[3, 1, 2]]
    assert {entry["snapshot_id"] for entry in both["snapshots"].values()} == {first, second}
    assert await house.refused(count, as_of=before.isoformat()) == (404, "before_first_snapshot")
    assert await house.refused(count, snapshot={table: 12345}) == (404, "snapshot_not_found")
    assert await house.refused(count, as_of="2026-01-01T00:00:00") == (422, "bad_time")
    assert await house.refused(count, snapshot={table: "x"}) == (422, "bad_snapshot_id")


async def test_as_of_a_moment_ago_does_not_depend_on_who_has_looked(house: House) -> None:
    table = await house.table(COLUMNS)
    for number in range(5):
        await house.send(table, {"item": "a", "amount": number})
        await house.commit(table)
        await asyncio.sleep(0.002)  # a snapshot's time has milliseconds
        now = datetime.now(UTC).isoformat()
        assert await house.rows(f"SELECT count(*) FROM {table}", as_of=now) == [[number + 1]]


async def test_an_expired_snapshot_is_told_as_such(house: House) -> None:
    table = await house.table(COLUMNS)
    snapshots = []
    for number in range(3):
        await house.send(table, {"item": "a", "amount": number})
        snapshots.append(await house.commit(table))
        house.running.gateway.journal.append("commit", table=f"main.{table}", snapshot=str(snapshots[-1]))
    expired_at = datetime.now(UTC)
    await asyncio.sleep(0.02)
    await house.send(table, {"item": "a", "amount": 4})
    await house.commit(table)
    await asyncio.to_thread(
        house.lake.catalog.load_table(f"main.{table}").maintenance.expire_snapshots().by_ids(snapshots).commit
    )
    await house.running.gateway.directory.refresh()
    assert await house.refused(f"FROM {table}", snapshot={table: snapshots[0]}) == (410, "snapshot_expired")
    assert await house.refused(f"FROM {table}", as_of=expired_at.isoformat()) == (410, "snapshot_expired")
    assert await house.rows(f"SELECT count(*) FROM {table}") == [[4]]


async def test_a_column_that_events_added_is_there_in_tail_and_snapshot(house: House) -> None:
    table = await house.table({"item": "string"}, unknown_fields="evolve")
    await house.send(table, {"item": "a"})
    first = await house.commit(table)
    await house.send(table, {"item": "b", "weight": 2.5})
    assert await house.rows(f"SELECT item, weight FROM {table} ORDER BY 1") == [["a", None], ["b", 2.5]]
    await house.commit(table)
    assert await house.rows(f"SELECT item, weight FROM {table} ORDER BY 1") == [["a", None], ["b", 2.5]]
    old = (await house.ask(f"SELECT * FROM {table}", snapshot={table: first})).json()
    assert "weight" not in [column["name"] for column in old["columns"]]


async def test_formats_and_what_they_carry_beside_the_rows(house: House) -> None:
    table = await house.table(COLUMNS)
    await house.send(table, {"item": "ice, “new”", "amount": 2**53 + 1}, {"item": None, "amount": None})
    sql = f"SELECT item, amount FROM {table} ORDER BY amount NULLS LAST"
    lines = await house.ask(sql, format="ndjson")
    assert [json.loads(line) for line in lines.text.splitlines()] == [
        {"item": "ice, “new”", "amount": 2**53 + 1},
        {"item": None, "amount": None},
    ]
    comma = await house.ask(sql, format="csv")
    assert comma.headers["content-type"] == "text/csv; charset=utf-8"
    assert comma.text.splitlines() == ["item,amount", f'"ice, “new”",{2**53 + 1}', ","]
    arrow = await house.http.post(
        "/v1/query", json={"sql": sql}, headers={"accept": "application/vnd.apache.arrow.stream"}
    )
    found = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert found["amount"].to_pylist() == [2**53 + 1, None] and found["amount"].type == pa.int64()
    for answer in (lines, comma, arrow):
        about = json.loads(answer.headers["frazil-answer"])
        assert about["row_count"] == 2 and about["truncated"] is False and about["token"].startswith("fzt1.")
        assert about["snapshots"][table]["live_rows"] == 2


async def test_an_answer_is_cut_at_max_rows_and_says_so(house: House) -> None:
    whole = (await house.ask("SELECT * FROM range(100)", max_rows=100)).json()
    assert (whole["row_count"], whole["truncated"]) == (100, False)
    cut = (await house.ask("SELECT * FROM range(100)", max_rows=99)).json()
    assert (cut["row_count"], cut["truncated"], len(cut["rows"])) == (99, True, 99)


async def test_parameters(house: House) -> None:
    table = await house.table(COLUMNS)
    await house.send(table, {"item": "a", "amount": 1}, {"item": "b", "amount": 2})
    assert await house.rows(f"SELECT amount FROM {table} WHERE item = $1", parameters=["b"]) == [[2]]
    assert await house.rows(f"SELECT amount FROM {table} WHERE item = $it", parameters={"it": "a"}) == [[1]]
    assert await house.rows("SELECT $1", parameters=["'; DROP TABLE x; --"]) == [["'; DROP TABLE x; --"]]
    status, _ = await house.refused(f"SELECT amount FROM {table} WHERE item = $1")
    assert status == 422


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "bad_query"),
        ({"sql": "   "}, "bad_query"),
        ({"sql": 5}, "bad_query"),
        ({"sql": "SELECT 1", "freshnes": "live"}, "unknown_field"),
        ({"sql": "SELECT 1", "freshness": "old"}, "bad_query"),
        ({"sql": "SELECT 1", "format": "xml"}, "bad_query"),
        ({"sql": "SELECT 1", "max_rows": 0}, "bad_query"),
        ({"sql": "SELECT 1", "max_rows": True}, "bad_query"),
        ({"sql": "SELECT 1", "timeout_s": 1e9}, "bad_query"),
        ({"sql": "SELECT 1", "snapshot": 7}, "bad_query"),
        ({"sql": "SELECT 1", "snapshot": {"../x": 7}}, "bad_table_name"),
        ({"sql": "SELECT 1", "parameters": "x"}, "bad_parameters"),
        ({"sql": "SELECT\0 1"}, "bad_sql"),
        ({"sql": "SELECT '" + "x" * 100_000 + "'"}, "sql_too_large"),
        ({"sql": "SELEC 1"}, "bad_sql"),
        ({"sql": "SELECT nothing_here FROM range(3)"}, "bad_sql"),
        ({"sql": "SELECT 1; SELECT 2"}, "sql_refused"),
        ({"sql": "SELECT read_text('/etc/passwd')"}, "function_not_allowed"),
        ({"sql": "SELECT * FROM nowhere"}, "table_not_found"),
        ({"sql": "SELECT CAST('x' AS INT)"}, "conversion_failed"),
    ],
)
async def test_what_is_wrong_is_said(house: House, body: dict[str, object], code: str) -> None:
    answer = await house.http.post("/v1/query", json=body)
    assert answer.json()["error"]["code"] == code, answer.text
    assert answer.json()["error"]["message"]
    assert answer.status_code in (404, 413, 422)


async def test_a_query_that_takes_too_long_is_ended_and_the_next_one_answered(house: House) -> None:
    endless = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"
    assert await house.refused(endless, timeout_s=0.5) == (504, "query_timeout")
    assert await house.rows("SELECT 41 + 1") == [[42]]


async def test_a_cte_may_have_the_name_of_a_table(house: House) -> None:
    table = await house.table(COLUMNS)
    await house.send(table, {"item": "a", "amount": 1})
    assert await house.rows(f"WITH {table} AS (SELECT 7 AS amount) SELECT amount FROM {table}") == [[7]]
    assert await house.rows("WITH not_a_table AS (SELECT 7 AS x) SELECT x FROM not_a_table") == [[7]]


async def test_namespaces(house: House) -> None:
    await house.running.declare(name="north.sales", columns=COLUMNS)
    await house.send("north.sales", {"item": "a", "amount": 9})
    answer = (await house.ask("SELECT sales.amount, s.item FROM north.sales JOIN North.SALES s USING (_id)")).json()
    assert answer["rows"] == [[9, "a"]]
    assert set(answer["snapshots"]) == {"north.sales"}
    answer2 = await house.http.post("/v1/tables", json={"name": "system.mine", "columns": COLUMNS})
    assert answer2.json()["error"]["code"] == "reserved_namespace"


async def test_history_of_a_table_and_of_a_row(house: House) -> None:
    table = await house.table(COLUMNS)
    await house.running.accept([{"id": "x", "data": {"item": "a", "amount": 1}}], table=table)
    first = await house.commit(table)
    await house.running.accept([{"id": "y", "data": {"item": "b", "amount": 2}}], table=table)
    second = await house.commit(table)
    await house.running.accept([{"id": "z", "data": {"item": "c", "amount": 3}}], table=table)
    told = (await house.http.get(f"/v1/tables/{table}/history")).json()
    assert [entry["snapshot_id"] for entry in told["snapshots"]] == [second, first]
    assert [entry["added_rows"] for entry in told["snapshots"]] == [1, 1]
    assert [entry["current"] for entry in told["snapshots"]] == [True, False]
    assert all(entry["watermark"].startswith("fzt1.") for entry in told["snapshots"])
    row = (await house.http.get(f"/v1/tables/{table}/rows/y/history")).json()
    assert [version["committed_in"] for version in row["versions"]] == [second]
    assert row["versions"][0]["row"]["item"] == "b"
    live = (await house.http.get(f"/v1/tables/{table}/rows/z/history")).json()
    assert live["versions"][0]["committed_in"] is None and live["versions"][0]["row"]["amount"] == 3
    assert (await house.http.get(f"/v1/tables/{table}/rows/q/history")).json()["error"]["code"] == "row_not_found"
    changed = (await house.http.get(f"/v1/tables/{table}/changes?from={first}")).json()
    assert (changed["added"], changed["removed"], changed["to"]) == (1, 0, second)
    assert [(entry["change"], entry["row"]["_id"]) for entry in changed["rows"]] == [("added", "y")]
    back = (await house.http.get(f"/v1/tables/{table}/changes?from={second}&to={first}")).json()
    assert (back["added"], back["removed"]) == (0, 1)
    unknown = await house.http.get(f"/v1/tables/{table}/changes?from=17")
    assert unknown.json()["error"]["code"] == "snapshot_not_found"


async def test_the_audit_log_is_a_table_for_admins(house: House) -> None:
    table = await house.table(COLUMNS)
    reader = await house.token("sql", f"read:{table}")
    await house.ask(f"SELECT count(*) FROM {table}", token=reader)
    await house.ask("SELEC 1", token=reader)
    found = await house.rows(
        "SELECT outcome, tables, rows, token_name, length(sql_hash) FROM system.audit "
        f"WHERE action = 'query' AND list_contains(tables, 'main.{table}') ORDER BY logged_at"
    )
    assert found == [["ok", [f"main.{table}"], 1, "a test", 64]]
    assert await house.rows(
        "SELECT count(*) FROM system.audit WHERE outcome = 'bad_sql' AND token_name = 'a test'"
    ) == [[1]]
    assert await house.refused("SELECT * FROM system.audit", token=reader) == (404, "table_not_found")
    assert await house.refused("SELECT * FROM system.audit AT (VERSION => 1)") == (422, "sql_refused")


async def test_another_gateway_answers_with_what_this_one_has_just_taken_in(house: House) -> None:
    table = await house.table(COLUMNS)
    pool = QueryPool(QuerySettings(workers=1), house.lake.warehouse, readable=[house.folder / "audit"])
    async with running(house.bus, house.lake, house.folder, pool=pool) as other:
        for number in range(20):
            writer, reader = (house.running, other) if number % 2 else (other, house.running)
            await writer.accept([{"id": f"g{number}", "data": {"item": "a", "amount": number}}], table=table)
            answer = await reader.http.post("/v1/query", json={"sql": f"SELECT count(*), max(amount) FROM {table}"})
            assert answer.json()["rows"] == [[number + 1, number]]
            if number % 7 == 3:
                await house.commit(table)


async def test_a_tail_that_is_too_long_is_told_or_waited_for(house: House) -> None:
    table = await house.table(COLUMNS)
    queries = house.running.gateway.queries
    assert queries is not None
    resolver = queries._resolver
    await house.send(table, *({"item": "x" * 100, "amount": n} for n in range(200)))
    limit, resolver._max_tail_bytes = resolver._max_tail_bytes, 5_000
    try:
        answer = await house.ask(f"SELECT count(*) FROM {table}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "tail_too_long")
        assert answer.json()["error"]["details"]["events"] == 200
        assert await house.rows(f"SELECT count(*) FROM {table}", freshness="committed") == [[0]]
        waiting = asyncio.create_task(house.rows(f"SELECT count(*) FROM {table}", when_behind="wait", timeout_s=120))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await house.commit(table)
        assert await waiting == [[200]]
    finally:
        resolver._max_tail_bytes = limit
