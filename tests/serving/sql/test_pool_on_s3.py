"""Workers that read from an object store: the one port is open, and the key stays out of sight."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.errors import FrazilError
from frazil.serving.sql import QueryPool, QuerySettings, Relation, SqlQuery
from frazil.storage import Warehouse
from tests.contract.seaweed import SeaweedServer
from tests.serving.sql.tables import ROWS, relation, rows, tail_of

pytestmark = [pytest.mark.s3, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def warehouse(seaweed: SeaweedServer) -> Warehouse:
    return seaweed.warehouse("query-workers")


@pytest.fixture(scope="module")
def table(warehouse: Warehouse) -> Table:
    catalog = SqlCatalog("store", uri="sqlite:///:memory:", **warehouse.for_pyiceberg())
    catalog.create_namespace("main")
    made = catalog.create_table("main.t", schema=ROWS)
    made.append(rows(0, 1000))
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(warehouse: Warehouse) -> AsyncIterator[QueryPool]:
    made = QueryPool(QuerySettings(workers=1), warehouse)
    await made.start()
    yield made
    await made.close()


async def ask(pool: QueryPool, sql: str, *relations: Relation) -> Any:
    return json.loads((await pool.run(SqlQuery(sql, "ann"), lambda: relations)).body)


async def test_a_table_of_a_bucket_is_read(pool: QueryPool, table: Table) -> None:
    live = relation(table, tail=tail_of("k", rows(1000, 1010), 1000, 1010))
    for _ in range(3):
        assert await ask(pool, "SELECT count(*), max(n) FROM t", live) == [[1010, 1009]]
    assert all(state.startswith("up") for state in pool.status()["walls"].values())


async def test_other_buckets_hosts_and_the_key_are_out_of_reach(pool: QueryPool, warehouse: Warehouse) -> None:
    """Without the wall of statements: what is run here was never judged."""
    for hostile in (
        "SELECT * FROM read_text('s3://other/x')",
        "SELECT * FROM read_text('http://127.0.0.1:1/x')",
        f"SELECT * FROM read_text('{warehouse.endpoint}/lake/other/x')",
        f"COPY (SELECT 1) TO '{warehouse.url}/../stolen.csv'",
        "SELECT * FROM read_text('/etc/hosts')",
    ):
        with pytest.raises(FrazilError) as refused:
            await ask(pool, hostile)
        assert refused.value.code in ("files_unreadable", "query_failed")
    shown = json.dumps(await ask(pool, "SELECT * FROM duckdb_secrets()"))
    assert warehouse.secret_access_key not in shown


async def test_a_missing_file_is_told_without_its_address(pool: QueryPool, warehouse: Warehouse) -> None:
    gone = Relation("main", "t", ROWS, f"{warehouse.url}/gone/metadata.json", None)
    with pytest.raises(FrazilError) as unreadable:
        await ask(pool, "SELECT * FROM t", gone)
    assert unreadable.value.code == "files_unreadable"
    assert "lake" not in unreadable.value.message


async def test_a_store_is_found_by_name(seaweed: SeaweedServer, table: Table) -> None:
    by_name = seaweed.warehouse("query-workers", endpoint=f"http://localhost:{seaweed.port}")
    pool = QueryPool(QuerySettings(workers=1), by_name)
    await pool.start()
    try:
        assert await ask(pool, "SELECT count(*) FROM t", relation(table)) == [[1000]]
    finally:
        await pool.close()
