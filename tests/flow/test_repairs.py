"""While frazil is down, other hands change the bus and a table. It refuses to go on, says so, and is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frazil.bus import open_bus
from tests.contract.servers import NatsServer
from tests.flow.checker import in_sqlite, read_rows
from tests.flow.producers import COLUMNS, event
from tests.flow.product import Product, eventually, new_folder, running
from tests.processes import stop

pytestmark = [pytest.mark.slow, pytest.mark.spark]
TABLES = ("kept", "purged", "replaced", "rolled")


@pytest.fixture
def product() -> Iterator[Product]:
    with new_folder("repairs") as folder, running(Product(folder / "data")) as product:
        yield product


def publish(product: Product, table: str, *names: str, wait: bool = False) -> dict[str, Any]:
    events = [event(name, 1, number) for number, name in enumerate(names)]
    path = f"/v1/tables/{table}/events" + ("?wait=visible&timeout_s=200" if wait else "")
    answer = product.ask("POST", path, {"events": events})
    assert answer.status_code == (200 if wait else 202), answer.text
    body: dict[str, Any] = answer.json()
    return body


def stored(product: Product, table: str) -> list[str]:
    return sorted(row.event_id for row in read_rows(in_sqlite(product.data / "catalog.db"), table))


class StoppedBus(NatsServer):
    """The embedded server on its own directory, without the rest of the product."""

    def __init__(self, product: Product) -> None:
        super().__init__(product.data / "bus", max_file_store_bytes=1 << 40)


def tamper(product: Product, streams: dict[str, str]) -> None:
    """Purge one stream, put another in the place of a second."""
    server = StoppedBus(product)
    server.start()

    async def change() -> None:
        bus = await open_bus(server.url, credentials=server.credentials, max_bytes=1 << 20)
        purged = await bus.open(streams["purged"])
        await purged.trim(await purged.head() + 1)
        await bus.delete(streams["replaced"])
        await bus.create(streams["replaced"])
        await bus.close()

    try:
        asyncio.run(change())
    finally:
        server.kill()


def roll_back(catalog_file: Path, warehouse: Path, table: str) -> None:
    """Back to the first snapshot, as any Iceberg tool does it."""
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{catalog_file}", warehouse=f"file://{warehouse}")
    loaded = catalog.load_table(f"main.{table}")
    first = loaded.metadata.snapshots[0].snapshot_id
    with loaded.manage_snapshots() as change:
        change.rollback_to_snapshot(first)
    catalog.close()


def test_a_bus_and_a_table_that_changed_while_frazil_was_down(product: Product) -> None:
    product.up()
    for table in TABLES:
        product.declare(table, COLUMNS)
        publish(product, table, "a", wait=True)
    for table in TABLES:
        publish(product, table, "b", wait=True)
    product.until_drained(*TABLES)
    assert {table: stored(product, table) for table in TABLES} == {table: ["a", "b"] for table in TABLES}

    # What is acknowledged from here on is on the bus alone.
    stop(product.part("pipeline"))
    for table in TABLES:
        publish(product, table, "c")
    streams = {table: str(product.ask("GET", f"/v1/tables/{table}").json()["stream"]) for table in TABLES}
    product.kill_everything()
    tamper(product, streams)
    roll_back(product.data / "catalog.db", product.data / "warehouse", "rolled")

    product.up()
    publish(product, "kept", "d", wait=True)
    assert stored(product, "kept") == ["a", "b", "c", "d"], "the others go on"
    told = product.until_status("degraded")
    assert told["reason"]

    def errors() -> dict[str, dict[str, Any]] | None:
        tables = product.status().get("tables", {})
        found = {name: tables.get(name, {}).get("last_error") or {} for name in TABLES[1:]}
        return found if all(found.values()) else None

    refused = eventually(errors, what="an error for each of the three tables", every=0.5) or {}
    assert {name: error["code"] for name, error in refused.items()} == {
        "purged": "bus_gap",
        "replaced": "bus_replaced",
        "rolled": "watermark_torn",
    }
    for name, command in (("purged", "bus"), ("replaced", "bus"), ("rolled", "watermark")):
        assert f"frazil repair {command} {name}" in refused[name]["hint"]
        answer = product.ask("POST", f"/v1/tables/{name}/events", {"events": [event("refused", 1, 1)]})
        assert answer.status_code == 500 and answer.json()["error"]["hint"], f"{name}: {answer.text}"
    shown = product.cli("status")
    assert shown.returncode == 1, "degraded"

    unsure = product.cli("repair", "bus", "purged")
    assert unsure.returncode != 0 and "--accept-loss" in unsure.stderr
    for name in ("purged", "replaced"):
        repaired = product.cli("repair", "bus", name, "--accept-loss")
        assert repaired.returncode == 0, repaired.stderr
    repaired = product.cli("repair", "watermark", "rolled")
    assert repaired.returncode == 0, repaired.stderr
    # Its second event was committed and trimmed before the table went back: the bus has it no more.
    eventually(
        lambda: (product.status()["tables"]["rolled"]["last_error"] or {}).get("code") == "bus_gap", what="a gap"
    )
    repaired = product.cli("repair", "bus", "rolled", "--accept-loss")
    assert repaired.returncode == 0, repaired.stderr

    for table in TABLES:
        publish(product, table, "e", wait=True)
    assert {table: stored(product, table) for table in TABLES} == {
        "kept": ["a", "b", "c", "d", "e"],
        "purged": ["a", "b", "e"],
        "replaced": ["a", "b", "e"],
        "rolled": ["a", "c", "e"],
    }
    product.until_status("ok")
    repairs = product.ask("GET", "/v1/journal?kind=bus_repaired").json()["entries"]
    assert {entry["table"] for entry in repairs} == {"main.purged", "main.replaced", "main.rolled"}
    assert product.stop() == 0
