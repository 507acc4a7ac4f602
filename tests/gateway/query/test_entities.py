"""Entities as callers see them: the state of each key, at every freshness, and the history behind it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.events import Token
from frazil.events.declaration import parse_table
from tests.entity_model import fold
from tests.gateway.query.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
PEOPLE = {"id": "long", "name": "string", "team": "string", "age": "int"}


async def people(house: House, **more: Any) -> str:
    return await house.table(PEOPLE, kind="entity", key=["id"], **more)


async def do(house: House, table: str, *events: dict[str, Any]) -> str:
    token: str = (await house.running.accept(list(events), table=table))["token"]
    return token


def upsert(key: int, ts: str | None = None, **data: Any) -> dict[str, Any]:
    return {"data": {"id": key, **data}} | ({"ts": f"2026-01-01T00:00:{ts}Z"} if ts else {})


def patch(key: int, ts: str | None = None, **data: Any) -> dict[str, Any]:
    return {**upsert(key, ts, **data), "op": "patch"}


def delete(key: int, ts: str | None = None) -> dict[str, Any]:
    return {**upsert(key, ts), "op": "delete"}


async def test_the_newest_event_of_a_key_counts(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a", age=1), upsert(2, name="b"), upsert(1, name="c"), delete(2))
    assert await house.rows(f"SELECT id, name, age FROM {t}") == [[1, "c", None]]
    assert await house.rows(f"SELECT count(*) FROM {t}__history") == [[4]]
    await house.commit(f"{t}__history")
    for freshness in ("live", "committed"):
        assert await house.rows(f"SELECT id, name, age FROM {t}", freshness=freshness) == [[1, "c", None]]


async def test_a_patch_changes_what_it_gives_and_null_is_a_value(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a", team="x", age=1), patch(1, team=None), patch(1, age=7))
    await do(house, t, patch(2, name="new"))
    expected = [[1, "a", None, 7], [2, "new", None, None]]
    assert await house.rows(f"SELECT id, name, team, age FROM {t} ORDER BY id") == expected
    assert await house.rows(f"SELECT _op, _patch FROM {t}__history ORDER BY _seq") == [
        ["upsert", None],
        ["patch", ["team"]],
        ["patch", ["age"]],
        ["patch", ["name"]],
    ]


async def test_an_event_of_an_earlier_time_than_one_before_it_does_not_apply(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, "10", name="now"), delete(2, "10"), upsert(1, "05", name="old"), upsert(2, "05"))
    await do(house, t, patch(1, "05", team="late"), patch(1, "10", age=3))
    assert await house.rows(f"SELECT id, name, team, age FROM {t}") == [[1, "now", None, 3]]


async def folded(house: House, table: str) -> int:
    await house.commit(f"{table}__history")
    snapshot_id = fold(house.lake, f"main.{table}")
    await house.running.gateway.directory.refresh()
    return snapshot_id


async def test_the_state_does_not_depend_on_what_is_folded(house: House) -> None:
    """The same events: all live, some committed, some folded, all folded."""
    t = await people(house)
    everything = f"SELECT id, name, team, age FROM {t} ORDER BY id"
    await do(house, t, upsert(1, "10", name="a", team="x", age=1), upsert(2, "10", name="b"), upsert(3, "10", name="c"))
    await folded(house, t)
    await do(house, t, patch(1, "11", age=2), delete(2, "11"), patch(3, "05", name="late"), upsert(4, "10", name="d"))
    expected = [[1, "a", "x", 2], [3, "c", None, None], [4, "d", None, None]]
    assert await house.rows(everything) == expected
    assert await house.rows(everything, freshness="committed") == [[1, "a", "x", 1], [2, "b", *[None] * 2], expected[1]]
    await house.commit(f"{t}__history")
    assert await house.rows(everything) == await house.rows(everything, freshness="committed") == expected
    await do(house, t, upsert(2, "10", name="too late"), patch(1, "11", team=None))
    expected[0] = [1, "a", None, 2]
    assert await house.rows(everything) == expected
    assert await house.rows(f"SELECT count(*) FROM {t}") == [[3]]
    await folded(house, t)
    assert await house.rows(everything) == await house.rows(everything, freshness="committed") == expected
    assert await house.rows(f"SELECT count(*) FROM {t} WHERE id = 2") == [[0]], "a deleted key stays deleted"


async def test_tokens_name_the_entity_and_count_for_its_history_too(house: House) -> None:
    t = await people(house)
    token = await do(house, t, upsert(1, name="a"))
    assert list(Token.parse(token).marks) == [f"main.{t}"]
    for name in (t, f"{t}__history"):
        answer = (await house.ask(f"SELECT name FROM {name}", min_token=token)).json()
        assert answer["rows"] == [["a"]] and list(Token.parse(answer["token"]).marks) == [f"main.{t}"]
    assert (await house.refused(f"SELECT 1 FROM {t}", min_token=token, freshness="committed", timeout_s=0.2))[0] == 504
    assert not (await house.http.get("/v1/visibility", params={"token": token})).json()["visible"]
    await house.commit(f"{t}__history")
    visible = (await house.http.get("/v1/visibility", params={"token": token, "wait_s": 10})).json()
    assert visible["visible"] and list(visible["tables"]) == [t]
    for name in (t, f"{t}__history"):
        found = await house.rows(f"SELECT name FROM {name}", min_token=token, freshness="committed")
        assert found == [["a"]]


async def test_the_answer_names_both_snapshots(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a"))
    base = await folded(house, t)
    await do(house, t, upsert(1, name="b"))
    history = await house.commit(f"{t}__history")
    await house.running.gateway.directory.refresh()
    told = (await house.ask(f"SELECT * FROM {t}")).json()["snapshots"][t]
    assert (told["snapshot_id"], told["history_snapshot_id"]) == (base, history)
    assert told["watermark"] == told["token"]


async def test_the_past_of_an_entity(house: House) -> None:
    t = await people(house)
    names = f"SELECT name FROM {t} ORDER BY id"
    await do(house, t, upsert(1, name="a"))
    await house.commit(f"{t}__history")
    unfolded = datetime.now(UTC).isoformat()
    await do(house, t, upsert(1, name="b"), upsert(2, name="c"))
    base = await folded(house, t)
    after_fold = datetime.now(UTC).isoformat()
    await do(house, t, delete(1))
    await house.commit(f"{t}__history")
    committed = datetime.now(UTC).isoformat()
    await do(house, t, upsert(2, name="d"))
    await folded(house, t)
    assert await house.rows(names) == [["d"]]
    assert await house.rows(names, as_of=unfolded) == [["a"]]
    assert await house.rows(names, as_of=after_fold) == [["b"], ["c"]]
    assert await house.rows(names, as_of=committed) == [["c"]]
    assert await house.rows(names, snapshot={t: base}) == [["b"], ["c"]]
    assert await house.rows(f"SELECT name FROM {t} FOR VERSION AS OF {base} ORDER BY id") == [["b"], ["c"]]
    token = await do(house, t, upsert(9, name="z"))
    assert await house.refused(names, snapshot={t: base}, min_token=token) == (422, "snapshot_before_token")


async def test_new_columns_are_seen_before_the_base_has_them(house: House) -> None:
    t = await people(house, unknown_fields="evolve")
    await do(house, t, upsert(1, name="a"), upsert(2, name="b"))
    await folded(house, t)
    await do(house, t, upsert(1, name="a", mail="a@x"), patch(2, mail="b@x"))
    rows = f"SELECT id, name, mail FROM {t} ORDER BY id"
    assert await house.rows(rows) == [[1, "a", "a@x"], [2, "b", "b@x"]]
    told = (await house.http.get(f"/v1/tables/{t}")).json()
    assert told["columns"]["mail"] == "string" and told["kind"] == "entity" and told["history"] == f"{t}__history"
    await house.http.patch(f"/v1/tables/{t}", json={"add_columns": {"born": "date"}, "description": "people"})
    await do(house, t, patch(1, born="2000-01-01"))
    assert await house.rows(f"SELECT id, mail, born FROM {t} ORDER BY id") == [
        [1, "a@x", "2000-01-01"],
        [2, "b@x", None],
    ]
    for name in (f"main.{t}", f"main.{t}__history"):
        assert {"mail", "born"} <= set(house.lake.table(name).spec.columns), name
        assert house.lake.table(name).spec.description == "people"


async def test_unknown_fields_that_are_kept_are_one_column(house: House) -> None:
    t = await people(house, unknown_fields="keep")
    await do(house, t, upsert(1, name="a", x=1, y=2), patch(1, x=5), patch(1, age=3))
    assert await house.rows(f"SELECT name, age, _extra FROM {t}") == [["a", 3, '{"x":5}']]


async def test_a_history_is_never_more_visible_than_its_entity(house: House) -> None:
    t, other = await people(house), await people(house)
    await do(house, t, upsert(1, name="a", team="blue", age=1), upsert(2, name="b", team="red", age=2))
    await do(house, t, upsert(1, name="c", team="red"))
    blue = await house.token("sql", {"scope": f"read:{t}", "where": "team = 'blue'", "mask": {"name": "redact"}})
    assert await house.rows(f"SELECT id FROM {t}", token=blue) == [], "the filter is for the state, not for its past"
    shown = await house.rows(f"SELECT id, name, age FROM {t}__history", token=blue)
    assert shown == [[1, "***", 1]]
    for name in (other, f"{other}__history"):
        assert await house.refused(f"SELECT 1 FROM {name}", token=blue) == (404, "table_not_found")
    every = await house.token("sql", f"read:{t}")
    assert len(await house.rows(f"SELECT * FROM {t}__history", token=every)) == 3
    refused = await house.http.post("/v1/tokens", json={"name": "x", "grants": [f"read:{t}__history"]})
    assert refused.status_code == 422 and refused.json()["error"]["code"] == "bad_grant"


async def test_an_entity_is_listed_once_and_its_history_takes_no_events(house: House) -> None:
    t = await people(house)
    listed = [table["name"] for table in (await house.http.get("/v1/tables")).json()["tables"]]
    assert t in listed and f"{t}__history" not in listed
    assert (await house.http.get(f"/v1/tables/{t}__history")).json()["kind"] == "history"
    sent = await house.running.send([upsert(1)], table=f"{t}__history")
    assert (sent.status_code, sent.json()["error"]["code"]) == (409, "is_a_history")
    for name, kind in ((f"{t}__history", "log"), ("x__quarantine", "log"), ("y", "history")):
        declared = {"name": name, "kind": kind, "columns": PEOPLE, "key": ["id"]}
        refused = await house.http.post("/v1/tables", json=declared)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "reserved_name"), name
    await do(house, t, upsert(1), upsert(2))
    await folded(house, t)
    await do(house, t, upsert(3))
    await house.commit(f"{t}__history")
    status = (await house.http.get("/v1/status")).json()["tables"]
    assert status[t]["rows"] == 2 and status[t]["unfolded"] == 1 and f"{t}__history" not in status


async def test_the_history_of_a_key(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(7, name="a"), upsert(8, name="x"), patch(7, name="b"))
    await house.commit(f"{t}__history")
    await house.running.gateway.directory.refresh()
    await do(house, t, delete(7))
    told = (await house.http.get(f"/v1/tables/{t}/rows", params={"key": "id=7"})).json()
    assert [version["row"]["_op"] for version in told["versions"]] == ["upsert", "patch", "delete"]
    assert [version["committed_in"] is None for version in told["versions"]] == [False, False, True]
    for key, status, code in (("id=9", 404, "row_not_found"), ("name=a", 422, "bad_key"), ("id", 422, "bad_parameter")):
        refused = await house.http.get(f"/v1/tables/{t}/rows", params={"key": key})
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


async def test_changes_between_two_states_are_the_events_between_them(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a"))
    first = await folded(house, t)
    await do(house, t, patch(1, name="b"), delete(2))
    second = await folded(house, t)
    told = (await house.http.get(f"/v1/tables/{t}/changes", params={"from": first, "to": second})).json()
    assert [row["row"]["_op"] for row in told["rows"]] == ["patch", "delete"] and told["added"] == 2


async def test_keys_of_several_columns_and_kinds(house: House) -> None:
    columns = {"s": "string", "d": "date", "m": "decimal(10,2)", "b": "bool", "at": "timestamp", "v": "list<string>"}
    t = await house.table(columns, kind="entity", key=["s", "d", "m", "b", "at"])
    key = {"s": "é:1", "d": "2026-01-01", "m": "1.50", "b": True, "at": "2026-01-01T00:00:00Z"}
    await do(house, t, {"data": {**key, "v": ["a"]}}, {"data": {**key, "b": False, "v": ["c"]}})
    await folded(house, t)
    await do(house, t, {"data": {**key, "v": ["b", None]}}, {"op": "patch", "data": {**key, "b": False, "v": None}})
    assert await house.rows(f"SELECT b, v FROM {t} ORDER BY b") == [[False, None], [True, ["b", None]]]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"data": {"name": "a"}}, "data.id"),
        ({"op": "delete", "data": {}}, "data.id"),
        ({"op": "patch", "data": {"id": None, "name": "a"}}, "data.id"),
        ({"op": "insert", "data": {"id": 1}}, "op"),
        ({"op": 7, "data": {"id": 1}}, "op"),
    ],
)
async def test_bad_events_are_named(house: House, event: dict[str, Any], field: str) -> None:
    t = await people(house)
    refused = await house.running.send([upsert(1), event], table=t)
    assert refused.status_code == 422, refused.text
    assert [(d["index"], d["field"]) for d in refused.json()["error"]["details"]] == [(1, field)]


async def test_required_columns_of_deletes_and_patches(house: House) -> None:
    columns = {"id": "long", "name": {"type": "string", "required": True}}
    t = await house.table(columns, kind="entity", key=["id"])
    await do(house, t, upsert(1, name="a"), upsert(2, name="b"), delete(2), patch(1))
    assert await house.rows(f"SELECT id, name FROM {t}") == [[1, "a"]]
    refused = await house.running.send([patch(1, name=None)], table=t)
    assert refused.json()["error"]["details"][0]["field"] == "data.name"


async def test_patches_as_arrow(house: House) -> None:
    t = await people(house)
    await do(house, t, *(upsert(key, name="a", team="x", age=1) for key in (1, 2, 3)))
    data = [{"id": 1, "name": "n1", "age": None}, {"id": 2, "age": 5}, {"id": 3}, {"id": 4, "name": "n4", "age": 6}]
    rows = pa.table(
        {
            "op": ["patch", "patch", "delete", None],
            "fields": pa.array([None, ["age"], None, None], pa.list_(pa.string())),
            "data": pa.array(data, pa.struct({"id": pa.int64(), "name": pa.string(), "age": pa.int32()})),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    sent = await house.http.post(f"/v1/tables/{t}/events", content=sink.getvalue().to_pybytes(), headers=headers)
    assert sent.status_code == 202, sent.text
    expected = [[1, "n1", "x", None], [2, "a", "x", 5], [4, "n4", None, 6]]
    assert await house.rows(f"SELECT id, name, team, age FROM {t} ORDER BY id") == expected


async def test_the_same_id_with_another_patch_is_a_conflict(house: House) -> None:
    t = await people(house)
    first = {"id": "p", "op": "patch", "data": {"id": 1, "name": None}}
    await do(house, t, first)
    again = await house.running.accept([first], table=t)
    assert again["duplicates"] == 1
    other = await house.running.send([{**first, "data": {"id": 1}}], table=t)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "id_conflict")


async def test_drop_and_undrop_take_both(house: House) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a"))
    await folded(house, t)
    await do(house, t, upsert(2, name="b"))
    assert (await house.http.delete(f"/v1/tables/{t}")).status_code == 200
    for name in (t, f"{t}__history"):
        assert (await house.refused(f"SELECT 1 FROM {name}"))[0] == 404
    dropped = (await house.http.get("/v1/tables", params={"dropped": "true"})).json()["tables"]
    assert {"name": t, "times": 1} in dropped and not any("__history" in entry["name"] for entry in dropped)
    await house.running.declare(name=t, kind="entity", key=["id"], columns=PEOPLE)
    assert await house.rows(f"SELECT * FROM {t}") == []
    await house.http.delete(f"/v1/tables/{t}")
    undropped = await house.http.post(f"/v1/tables/{t}/undrop")
    assert undropped.status_code == 200 and await house.rows(f"SELECT * FROM {t}") == []
    await house.http.delete(f"/v1/tables/{t}")


async def test_the_documented_statement_tells_old_and_new_values(house: House) -> None:
    page = (Path(__file__).parents[3] / "docs" / "entities.md").read_text()
    (sql,) = re.findall(r"<<'EOF'\n(WITH applied.*?)\nEOF", page, re.DOTALL)
    t = await house.table({"id": "long", "email": "string", "plan": "string"}, kind="entity", key=["id"])
    await do(
        house,
        t,
        upsert(1, "01", email="a"),
        patch(1, "02", plan="x"),
        patch(1, "03", email="b"),
        patch(1, "02", email="late"),
        delete(1, "04"),
    )
    rows = await house.rows(sql.replace("users__history", f"{t}__history"))
    assert [row[-2:] for row in rows] == [[None, "a"], ["a", "b"], ["b", None]]


@pytest.mark.parametrize("mixed", [False, True])
async def test_large_bodies(house: House, mixed: bool) -> None:
    """Beyond a few kilobytes another path decodes, which leaves deletes and patches to the exact one."""
    t = await people(house)
    events = [upsert(key, name=f"n{key}", team="x", age=key) for key in range(200)]
    if mixed:
        events += [patch(3, team=None), delete(4)]
    await do(house, t, *events)
    counted = await house.rows(f"SELECT count(*), count(team), max(age), min(_op) FROM {t}")
    assert counted == [[199, 198, 199, "patch"] if mixed else [200, 200, 199, "upsert"]]
    assert await house.rows(f"SELECT count(_patch) FROM {t}__history") == [[int(mixed)]]


async def test_a_declaration_that_broke_off_is_finished_by_declaring_again(house: House) -> None:
    spec = parse_table({"name": "halved", "kind": "entity", "key": ["id"], "columns": PEOPLE})
    stream = await house.bus.create("halved")
    house.lake.create(spec.history(), stream=stream.name, identity=stream.identity)
    assert (await house.running.send([upsert(1)], table="halved")).status_code == 404
    for status in (201, 200):
        assert (await house.http.post("/v1/tables", json=spec.declared())).status_code == status
    await do(house, "halved", upsert(1, name="a"))
    assert await house.rows("SELECT name FROM halved") == [["a"]]


@pytest.mark.parametrize("how", ["declare", "undrop", "drop"])
async def test_a_drop_that_broke_off(house: House, how: str) -> None:
    t = await people(house)
    await do(house, t, upsert(1, name="a"))
    await house.commit(f"{t}__history")
    house.lake.drop(f"main.{t}__history")
    await house.running.gateway.directory.refresh()
    assert await house.refused(f"SELECT * FROM {t}") == (404, "history_missing")
    assert (await house.running.send([upsert(2)], table=t)).json()["error"]["code"] == "history_missing"
    if how == "drop":
        assert (await house.http.delete(f"/v1/tables/{t}")).status_code == 200
        assert await house.refused(f"SELECT * FROM {t}") == (404, "table_not_found")
    elif how == "undrop":
        assert (await house.http.post(f"/v1/tables/{t}/undrop")).status_code == 200
        assert await house.rows(f"SELECT name FROM {t}") == [["a"]]
    else:
        declared = {"name": t, "kind": "entity", "key": ["id"], "columns": PEOPLE}
        assert (await house.http.post("/v1/tables", json=declared)).status_code == 201
        assert await house.rows(f"SELECT name FROM {t}") == []


async def test_a_base_that_is_newer_than_the_history_seen_changes_nothing(house: House) -> None:
    """As where a fold is seen before the commit that it folded: events that it has are put on top of it again."""
    t = await people(house)
    name = f"main.{t}"
    await do(
        house, t, upsert(1, "10", name="a"), patch(1, "10", age=1), patch(1, "11", team="x"), patch(1, "05", age=9)
    )
    await house.commit(f"{t}__history", trim=False)
    fold(house.lake, name)
    await do(house, t, delete(2, "10"), patch(1, "11", age=2))
    directory = house.running.gateway.directory
    stale = directory._tables[f"{name}__history"]
    await directory.refresh()
    directory._tables[f"{name}__history"] = stale
    expected = [[1, "a", "x", 2]]
    assert await house.rows(f"SELECT id, name, team, age FROM {t}") == expected
    await directory.refresh()
    assert await house.rows(f"SELECT id, name, team, age FROM {t}") == expected
