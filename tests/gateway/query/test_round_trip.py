"""Every declared type survives publish → live → committed → each format. `tests/flow` has the same with Spark."""

from __future__ import annotations

import pytest

from tests.gateway.query.conftest import House
from tests.gateway.query.values import TYPES, check, sent, some_rows

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("seed", range(6))
async def test_values_come_back_as_they_were_sent(house: House, seed: int) -> None:
    table = await house.table({name: kind for name, (kind, *_) in TYPES.items()})
    rows = some_rows(seed, 40)
    for row in rows:
        row["ls"] = (
            row["ls"] or []
        )  # PyIceberg, which commits here in Spark's place, writes a null list as an empty one
    await house.send(table, *sent(rows))
    sql = f"SELECT {', '.join(TYPES)} FROM {table} ORDER BY _seq"
    for committed in (False, True):
        if committed:
            await house.commit(table)
            await house.running.gateway.directory.refresh()
        assert (await house.ask(sql)).json()["snapshots"][table]["live_rows"] == (0 if committed else len(rows))
        formats = ("json", "ndjson", "csv", "arrow")
        check(rows, {format_: (await house.ask(sql, format=format_)).content for format_ in formats})
