"""Waits for the tables of a query end with the query."""

from __future__ import annotations

import pytest

from tests.gateway.query.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_query_that_fails_leaves_no_wait_for_its_other_tables(house: House) -> None:
    waited, broken = await house.table({"n": "long"}), await house.table({"n": "long"})
    token = await house.send(waited, {"n": 1})
    status, code = await house.refused(
        f"SELECT 1 FROM {waited}, {broken} AT (VERSION => 12345)",
        freshness="committed",
        min_token=token,
        timeout_s=120,
    )
    assert (status, code) == (404, "snapshot_not_found")
    assert house.running.gateway.directory._waiting == 0
