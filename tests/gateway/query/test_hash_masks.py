"""Hashes of masked columns: equal values are told apart from others inside one domain, and nobody confirms a guess."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from frazil.access import Grant, TokenRecord, shared_mask_salt
from frazil.serving.sql import QueryPool, QuerySettings
from frazil.serving.sql.worker_config import fork_server_config
from tests.gateway.http.harness import running
from tests.gateway.query.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
COLUMNS = {"email": "string", "friend": "string", "n": "long"}
ANN, BOB = "ann@ice.example", "bob@ice.example"


async def people(house: House, *, committed: bool = True, **more: Any) -> str:
    table = await house.table(COLUMNS, **more)
    await house.send(table, {"email": ANN, "friend": BOB, "n": 1}, {"email": BOB, "friend": ANN, "n": 2})
    if committed and not more:
        await house.commit(table)
        await house.running.gateway.directory.refresh()
    return table


def hashed(table: str, mask: str = "hash", **more: str) -> dict[str, Any]:
    return {"scope": f"read:{table}", "mask": {"email": mask, **more}}


async def emails(house: House, table: str, token: str) -> list[str]:
    return [row[0] for row in await house.rows(f"SELECT email FROM {table} ORDER BY n", token=token)]


@pytest.mark.parametrize("committed", [False, True])
async def test_another_table_confirms_no_guess(house: House, committed: bool) -> None:
    """The attack: whoever may publish to a table, and reads that one's hashes too, joins guesses with the secrets."""
    secrets, guesses = await people(house, committed=committed), await people(house, committed=committed)
    reader = await house.token("sql", hashed(secrets), hashed(guesses))
    joined = f"SELECT count(*) FROM {secrets} s JOIN {guesses} g ON s.email = g.email"
    assert await house.rows(joined, token=reader) == [[0]]
    assert await house.rows(joined) == [[2]], "an admin joins them"
    seen = await emails(house, secrets, reader)
    assert len(set(seen)) == 2 and all(len(text) == 64 for text in seen)
    assert not set(seen) & set(await emails(house, guesses, reader))


async def test_another_column_and_another_token_confirm_no_guess(house: House) -> None:
    table = await people(house)
    one = await house.token("sql", hashed(table, friend="hash"))
    other = await house.token("sql", hashed(table, friend="hash"))
    assert await house.rows(f"SELECT count(*) FROM {table} a JOIN {table} b ON a.email = b.friend", token=one) == [[0]]
    assert await house.rows(f"SELECT count(*) FROM {table} a JOIN {table} b ON a.email = b.email", token=one) == [[2]]
    assert not set(await emails(house, table, one)) & set(await emails(house, table, other))


async def test_a_named_domain_joins_on_purpose(house: House) -> None:
    first, second, third = [await people(house) for _ in range(3)]
    named = [hashed(first, "hash(people)", friend="hash(people)"), hashed(second, "hash(people)")]
    one = await house.token("sql", *named, hashed(third, "hash(others)"))
    other = await house.token("sql", *named)
    for joined, found in (
        (f"{first} a JOIN {second} b ON a.email = b.email", 2),
        (f"{first} a JOIN {second} b ON a.friend = b.email", 2),
        (f"{first} a JOIN {third} b ON a.email = b.email", 0),
    ):
        assert await house.rows(f"SELECT count(*) FROM {joined}", token=one) == [[found]], joined
    assert await emails(house, first, one) == await emails(house, first, other) == await emails(house, second, other)
    plain = await house.token("sql", hashed(first))
    assert not set(await emails(house, first, plain)) & set(await emails(house, first, one))


async def test_a_token_sees_the_same_hashes_tomorrow(house: House) -> None:
    table = await people(house)
    made = (await house.http.post("/v1/tokens", json={"name": "a", "grants": ["sql", hashed(table)]})).json()
    before = await emails(house, table, made["token"])
    rotated = (await house.http.post(f"/v1/tokens/{made['id']}/rotate")).json()["token"]
    assert await emails(house, table, rotated) == before, "a new secret of the same token"
    pool = QueryPool(QuerySettings(workers=1), house.lake.warehouse, readable=[house.folder / "audit"])
    async with running(house.bus, house.lake, house.folder, pool=pool) as second:
        other = House(second, house.bus, house.lake, house.folder)
        assert await emails(other, table, rotated) == before, "another gateway"


async def test_an_entity_and_its_history_have_the_same_hashes(house: House) -> None:
    table = await people(house, kind="entity", key=["n"])
    token = await house.token("sql", hashed(table))
    joined = f"SELECT count(*) FROM {table} s JOIN {table}__history h ON s.email = h.email"
    assert await house.rows(joined, token=token) == [[2]]


async def test_only_the_hash_is_there_to_be_asked(house: House) -> None:
    table = await people(house)
    await house.running.accept([{"id": ANN, "data": {"email": ANN, "friend": BOB, "n": 0}}], table=table)
    masks = {"email": "hash", "_id": "hash", "friend": "redact"}
    token = await house.token("sql", {"scope": f"read:{table}", "mask": masks})
    plain, digest = f"email = '{ANN}'", (await emails(house, table, token))[0]
    for condition, found in (
        (plain, 0),
        (f"lower(email) LIKE 'ann%' OR {plain}", 0),
        (f"sha256('{ANN}') = email", 0),
        (f"email = '{digest}'", 2),
    ):
        assert await house.rows(f"SELECT count(*) FROM {table} WHERE {condition}", token=token) == [[found]], condition
    sorting = f"SELECT email, min(email) OVER (), max(email) OVER () FROM {table} ORDER BY 1"
    ordered = await house.rows(sorting, token=token)
    assert [row[0] for row in ordered] == sorted(row[0] for row in ordered)
    assert {row[1] for row in ordered} == {ordered[0][0]} and {row[2] for row in ordered} == {ordered[-1][0]}
    assert ANN not in (await house.ask(f"SUMMARIZE {table}", token=token)).text
    headers = {"authorization": f"Bearer {token}"}
    by_guess = await house.http.get(f"/v1/tables/{table}/rows/{ANN}/history", headers=headers)
    assert by_guess.json()["error"]["code"] == "row_not_found"
    ((known,),) = await house.rows(f"SELECT _id FROM {table} WHERE n = 0", token=token)
    by_hash = await house.http.get(f"/v1/tables/{table}/rows/{known}/history", headers=headers)
    assert by_hash.json()["versions"][0]["row"]["email"] == digest
    first = house.lake.table(f"main.{table}").snapshot_id
    await house.commit(table)
    changed = await house.http.get(f"/v1/tables/{table}/changes?from={first}", headers=headers)
    assert changed.json()["rows"][0]["row"]["email"] == digest and ANN not in changed.text


@pytest.mark.parametrize("ingest", ["ingest:{t}", "ingest:*", "ingest:main.*"])
@pytest.mark.parametrize("mask", ["hash", "hash(people)"])
async def test_no_token_publishes_guesses_and_reads_their_hashes(house: House, ingest: str, mask: str) -> None:
    table = await people(house)
    grants = ["sql", ingest.format(t=table), hashed(table, mask)]
    refused = await house.http.post("/v1/tokens", json={"name": "a", "grants": grants})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_grant")
    await house.token("sql", ingest.format(t=table), hashed(table, "redact"))
    await house.token("sql", "admin", ingest.format(t=table), hashed(table, mask))
    await house.token("sql", "ingest:elsewhere", hashed(table, mask))


@pytest.mark.parametrize(
    "mask", ["hash()", "hash(People)", "hash(a b)", "hash(people", "hash(a)\n", "hash\n", "md5", 7]
)
async def test_masks_that_cannot_be(house: House, mask: Any) -> None:
    table = await people(house)
    answer = await house.http.post("/v1/tokens", json={"name": "a", "grants": [hashed(table, mask)]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_grant")


async def test_stored_grants_keep_their_meaning(house: House) -> None:
    """As they were written before domains had names; a mask that is not known is never taken for none."""
    stored = {
        "id": "0123456789ab",
        "name": "old",
        "digest": "",
        "grants": [{"verb": "read", "tables": "main.t", "masks": {"email": "hash"}}],
        "created_at": "2026-01-01T00:00:00Z",
        "created_by": "admin",
    }
    record = msgspec.json.decode(msgspec.json.encode(stored), type=TokenRecord)
    grant = record.identity().read_grant("main.t")
    assert grant is not None and grant.masks == {"email": "hash"} and "0123456789ab" in grant.hash_domains["email"]
    stored["grants"] = [{"verb": "read", "tables": "main.t", "masks": {"email": "scramble"}}]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(stored), type=TokenRecord)


async def test_workers_do_not_know_the_master_salt(house: House) -> None:
    master = shared_mask_salt(house.lake.registry)
    assert master not in msgspec.json.encode(fork_server_config(QuerySettings(), house.lake.warehouse, ())).decode()
    table = await people(house)
    token = await house.token("sql", hashed(table))
    for sql in (
        "SELECT * FROM duckdb_functions()",
        "SELECT * FROM duckdb_views()",
        "SELECT sql FROM sqlite_master",
        "SELECT * FROM information_schema.views",
        "SHOW ALL TABLES",
        f"EXPLAIN SELECT email FROM {table}",
    ):
        answer = await house.ask(sql, token=token)
        assert answer.status_code != 200, sql
        assert "sha256" not in answer.text


async def test_a_stored_mask_of_the_position_fails_nothing(house: House) -> None:
    """It cannot be granted any more; where rows are told apart by it such a token is refused."""
    table = await people(house)
    grants = (Grant("sql"), Grant("read", f"main.{table}", masks={"_seq": "null"}))
    _, secret = house.running.gateway.access.tokens.create("old", grants, created_by="admin")
    assert await house.rows(f"SELECT count(*), count(_seq) FROM {table}", token=secret) == [[2, 0]]
    headers = {"authorization": f"Bearer {secret}"}
    first = house.lake.table(f"main.{table}").snapshot_id
    for path in ("rows/e1/history", "rows?key=n=1", f"changes?from={first}"):
        answer = await house.http.get(f"/v1/tables/{table}/{path}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), path
    assert (await house.http.get(f"/v1/tables/{table}/history", headers=headers)).status_code == 200
