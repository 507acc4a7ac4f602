"""The judge must be able to say guilty: each kind of broken promise is put before it and named."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.flow.checker import Verdict, in_sqlite, read_rows, verdict
from tests.flow.producers import event

_TYPES = {
    "_id": pa.string(),
    "producer": pa.int32(),
    "number": pa.int64(),
    "words": pa.string(),
    "amount": pa.decimal128(20, 4),
    "checksum": pa.string(),
}


def row(name: str, **other: Any) -> dict[str, Any]:
    sent = event(name, 1, 7)["data"]
    return {"_id": name, **sent, "amount": Decimal(sent["amount"]), **other}


def judge(folder: Path, log: list[str], rows: list[dict[str, Any]]) -> Verdict:
    """A table written by PyIceberg, and the log of one producer."""
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("main")
    content = pa.Table.from_pylist(rows, schema=pa.schema(list(_TYPES.items())))
    catalog.create_table("main.t", content.schema).append(content)
    catalog.close()
    (folder / "p.log").write_text("".join(f"{line}\n" for line in log))
    return verdict(folder, {"t": read_rows(in_sqlite(folder / "catalog.db"), "t")})


def test_what_was_promised_and_kept_is_clean(tmp_path: Path) -> None:
    log = ["sent\tt\ta,b", "acked\tt\ta,b", "sent\tt\tc", "unknown\tt\tc", "sent\tt\td", "unknown\tt\td"]
    found = judge(tmp_path, log, [row("a"), row("b"), row("c")])
    assert found.is_clean and (found.sent, found.acked, found.stored) == (4, 2, 3)


def test_an_empty_table_is_clean_only_without_promises(tmp_path: Path) -> None:
    found = judge(tmp_path, ["sent\tt\ta", "acked\tt\ta"], [])
    assert found.lost == {"a"} and not found.is_clean


@pytest.mark.parametrize(
    ("rows", "guilty"),
    [
        ([row("a")], {"lost": {"b"}}),
        ([row("a"), row("b"), row("a")], {"duplicated": {"a"}}),
        ([row("a"), row("b"), row("z")], {"phantom": {"z"}}),
        ([row("a"), row("b", number=8)], {"damaged": {"b"}}),
        ([row("a"), row("b", amount=Decimal("0.0001"))], {"damaged": {"b"}}),
        ([row("a"), row("b", words="x")], {"damaged": {"b"}}),
    ],
)
def test_each_broken_promise_is_named(tmp_path: Path, rows: list[dict[str, Any]], guilty: dict[str, set[str]]) -> None:
    found = judge(tmp_path, ["sent\tt\ta,b", "acked\tt\ta,b"], rows)
    named = {
        kind: getattr(found, kind) for kind in ("lost", "duplicated", "phantom", "damaged") if getattr(found, kind)
    }
    assert named == guilty and not found.is_clean
    assert str(found).count("'") > 0


def test_an_event_in_the_wrong_table_is_a_phantom(tmp_path: Path) -> None:
    found = judge(tmp_path, ["sent\tother\ta", "acked\tother\ta"], [row("a")])
    assert found.phantom == {"a"}
