"""Conditions over rows: judged and evaluated behind the walls, on what the caller would see in SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from frazil.errors import InvalidInput
from frazil.serving import Bitmap
from frazil.serving.artifacts import ArtifactSource, SourceState
from frazil.serving.artifacts.parts import DUCKDB, DuckPart
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.sql import QueryPool, QuerySettings
from frazil.serving.sql.worker import RowSelection
from frazil.storage import Warehouse

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROWS = 200
STORED = pa.schema([("_id", pa.string()), ("year", pa.int64()), ("email", pa.string())])
SCHEMA = STORED.append(pa.field("later", pa.string()))
TABLE = pa.table(
    [[f"d{i}" for i in range(ROWS)], [i % 50 for i in range(ROWS)], [f"a{i % 4}@x" for i in range(ROWS)]], schema=STORED
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: Any) -> AsyncIterator[tuple[QueryPool, Path]]:
    folder: Path = tmp_path_factory.mktemp("selection")
    artifact = folder / "cache" / "g1"
    write_artifact(ArtifactSource("main.t", SourceState("s", 1, 1), STORED, TABLE.to_batches()), artifact, [DuckPart()])
    pool = QueryPool(QuerySettings(workers=1), Warehouse(f"file://{folder}/warehouse"), readable=[folder / "cache"])
    await pool.start(salt="salt")
    yield pool, artifact / DUCKDB
    await pool.close()


async def chosen(place: tuple[QueryPool, Path], selection: RowSelection) -> list[int]:
    """The same of the file and of rows that are sent."""
    pool, file = place
    of_file = await pool.select(selection, file, ROWS, owner="o", timeout_seconds=20)
    of_rows = await pool.select(selection, TABLE, ROWS, owner="o", timeout_seconds=20)
    assert of_file == of_rows
    found: list[int] = of_file.ordinals().tolist()
    return found


async def test_conditions_are_met_by_all_that_is_chosen(place: tuple[QueryPool, Path]) -> None:
    found = await chosen(place, RowSelection(SCHEMA, conditions=("year < 3 -- a comment", "_id <> 'd0'")))
    assert found == [i for i in range(1, ROWS) if i % 50 < 3]
    assert await chosen(place, RowSelection(SCHEMA)) == list(range(ROWS))
    assert await chosen(place, RowSelection(SCHEMA, conditions=("later IS NOT NULL",))) == []
    assert await chosen(place, RowSelection(SCHEMA, conditions=("year = 1 OR NULL",))) == [1, 51, 101, 151]


async def test_a_grant_hides_rows_and_masks_columns_from_conditions(place: tuple[QueryPool, Path]) -> None:
    hidden = RowSelection(SCHEMA, where="year % 2 = 0", conditions=("year < 4",))
    assert await chosen(place, hidden) == [i for i in range(ROWS) if i % 50 in (0, 2)]
    masked = RowSelection(SCHEMA, masks={"email": "redact"}, conditions=("email = 'a1@x'",))
    assert await chosen(place, masked) == []
    redacted = RowSelection(SCHEMA, masks={"email": "redact"}, conditions=("email = '***'",))
    assert len(await chosen(place, redacted)) == ROWS
    nulled = RowSelection(SCHEMA, masks={"year": "null"}, conditions=("year IS NULL",))
    assert len(await chosen(place, nulled)) == ROWS


@pytest.mark.parametrize(
    "condition",
    [
        "year",
        "_document = 1",
        "(SELECT true)",
        "year = 1) OR (true",
        "true; DROP TABLE x",
        "read_text('/etc/passwd') = ''",
        "count(*) > 1",
        "row_number() OVER () = 1",
        "$1",
        "nope = 1",
        "a.main.rows.year = 1",
        "getenv('HOME') = ''",
        "",
        "--",
    ],
)
async def test_what_is_no_condition_is_refused(place: tuple[QueryPool, Path], condition: str) -> None:
    pool, file = place
    for rows in (file, TABLE):
        with pytest.raises(InvalidInput):
            await pool.select(RowSelection(SCHEMA, conditions=(condition,)), rows, ROWS, owner="o", timeout_seconds=20)


async def test_a_failing_cast_tells_nothing_of_hidden_rows(place: tuple[QueryPool, Path]) -> None:
    pool, file = place
    only = RowSelection(
        SCHEMA, where="_id = 'd7'", conditions=("CAST(CASE WHEN year = 8 THEN 'x' ELSE '1' END AS INT) = 1",)
    )
    assert await chosen(place, only) == [7]
    seen = RowSelection(SCHEMA, where="_id = 'd7'", conditions=("CAST(email AS INT) = 1",))
    with pytest.raises(InvalidInput) as failed:
        await pool.select(seen, file, ROWS, owner="o", timeout_seconds=20)
    assert "a3@x" not in str(failed.value)


async def test_rows_are_shown_masked_in_their_order(place: tuple[QueryPool, Path]) -> None:
    pool, _ = place
    few = TABLE.slice(0, 3).append_column("later", pa.array(["x", None, "z"]))
    shown = await pool.show(
        RowSelection(SCHEMA, where="year <> 1", masks={"email": "hash", "_id": "null"}, hash_domains={"email": "a"}),
        few,
        owner="o",
        timeout_seconds=20,
    )
    assert [row[:3] for row in shown] == [[0, None, 0], [2, None, 2]]
    assert all(len(row[3]) == 64 for row in shown) and shown[0][3] != shown[1][3]
    assert [row[4] for row in shown] == ["x", "z"]


async def test_a_bitmap_of_another_size_is_refused() -> None:
    assert Bitmap.of_packed(b"\x05", 3).ordinals().tolist() == [0, 2]
    for packed, size in ((b"\x0d", 3), (b"", 3), (b"\x01\x00", 3)):
        with pytest.raises(ValueError, match="no bitmap"):
            Bitmap.of_packed(packed, size)
