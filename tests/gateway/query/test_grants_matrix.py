"""The same roles and tables as in `tests/gateway/http/test_grants_matrix.py`, for the verbs that need query workers."""

from __future__ import annotations

import httpx
import pytest

from tests.gateway.http.test_grants_matrix import EXIST, MATRIX, TABLES, full, rights_of, secret_of
from tests.gateway.query.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERBS = ("query", "join", "history", "row", "changes", "export")
READS = ("R", "RI", "A")


async def called(http: httpx.AsyncClient, verb: str, table: str) -> httpx.Response:
    if verb == "query":
        return await http.post("/v1/query", json={"sql": f"SELECT count(*) FROM {full(table)}"})
    if verb == "join":  # one table that may be read does not open the door to the other
        return await http.post("/v1/query", json={"sql": f"SELECT count(*) FROM range(3) r, {full(table)} t"})
    path = {"history": "history", "row": "rows/nobody/history", "changes": "changes?from=1", "export": "export-hint"}[
        verb
    ]
    if verb == "export":
        return await http.post(f"/v1/tables/{table}/{path}")
    return await http.get(f"/v1/tables/{table}/{path}")


def expected(verb: str, role: str, table: str) -> str:
    """The outcome in one word: `ok`, or the code of the refusal."""
    right = rights_of(role)[table]
    scopes = [grant for grant in MATRIX[role][0] if isinstance(grant, str)]
    may_read = right in READS
    if verb == "export":
        if right != "A":
            return "forbidden"
        return "ok" if table in EXIST else "table_not_found"
    if verb in ("query", "join"):
        if not {"sql", "admin"} & set(scopes):
            return "forbidden"
        return "ok" if may_read and (table in EXIST or table == "system.audit") else "table_not_found"
    if not may_read or table not in EXIST:
        return "table_not_found"
    return {"history": "ok", "row": "row_not_found", "changes": "snapshot_not_found"}[verb]


@pytest.mark.parametrize("role", MATRIX)
async def test_every_cell(house: House, role: str) -> None:
    for name in EXIST:
        await house.running.declare(name=name)
    headers = {"authorization": f"Bearer {secret_of(house.running, role)}"}
    differ = []
    transport = house.http._transport
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers, timeout=60) as http:
        for verb in VERBS:
            for table in TABLES:
                answer = await called(http, verb, table)
                found = "ok" if answer.status_code == 200 else answer.json()["error"]["code"]
                if found != expected(verb, role, table):
                    differ.append(f"{role} {verb} {table}: {found}, not {expected(verb, role, table)}")
    assert differ == []
