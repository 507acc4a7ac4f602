"""The catalog is deleted while frazil is down. The warehouse and the bus have the rest, and nothing is doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.flow.checker import in_sqlite, read_rows
from tests.flow.producers import COLUMNS, event
from tests.flow.product import Product, new_folder, running

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def product() -> Iterator[Product]:
    with new_folder("lost") as folder, running(Product(folder / "data")) as product:
        yield product


def publish(product: Product, table: str, *names: str) -> None:
    events = [event(name, 1, ord(name)) for name in names]
    answer = product.ask("POST", f"/v1/tables/{table}/events", {"events": events})
    assert answer.status_code == 202, answer.text


def stored(product: Product, table: str) -> list[str]:
    return sorted(row.event_id for row in read_rows(in_sqlite(product.data / "catalog.db"), table))


def test_publishing_and_committing_go_on_exactly_once(product: Product) -> None:
    product.up()
    for table in ("orders", "clicks", "gone"):
        product.declare(table, COLUMNS)
    publish(product, "orders", "a", "b")
    publish(product, "gone", "x")
    publish(product, "clicks", "a")
    product.until_drained("orders", "clicks", "gone")
    assert product.ask("DELETE", "/v1/tables/gone").status_code == 200
    # These are on the bus when everything dies, committed or not.
    publish(product, "orders", "c", "d")
    product.kill_everything()
    for file in product.data.glob("catalog.db*"):
        file.unlink()

    shown = product.cli("catalog", "repair", "--dry-run", "--json")
    assert shown.returncode == 0, shown.stderr
    done = product.cli("catalog", "repair", "--json")
    assert done.returncode == 0, done.stderr
    states = {table["name"]: table["state"] for table in json.loads(done.stdout)["tables"]}
    assert states == {"orders": "registered", "clicks": "registered", "gone": "dropped"}
    assert {table["name"]: table["state"] for table in json.loads(shown.stdout)["tables"]} == states

    product.up()
    publish(product, "orders", "b", "c", "e")
    publish(product, "clicks", "b")
    product.until_drained("orders", "clicks")
    assert stored(product, "orders") == ["a", "b", "c", "d", "e"]
    assert stored(product, "clicks") == ["a", "b"]
    answer = product.ask("POST", "/v1/query", {"sql": "SELECT count(*) FROM orders"})
    assert answer.status_code == 200 and "5" in answer.text
    assert product.ask("POST", "/v1/tables/gone/undrop").status_code == 200
    publish(product, "gone", "x", "y")
    product.until_drained("gone")
    assert stored(product, "gone") == ["x", "y"]
    beside = product.cli("catalog", "repair", "--json")
    assert {table["state"] for table in json.loads(beside.stdout)["tables"]} == {"already_there"}
