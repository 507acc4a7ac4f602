"""The pipeline's engine stopped, or killed by one event again and again, in the real product."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tests.contract.servers import running_nats
from tests.flow.checker import in_sqlite, read_rows
from tests.flow.deadly_pipeline import DEADLY
from tests.flow.producers import COLUMNS, event
from tests.flow.product import (
    Parts,
    Product,
    eventually,
    nats_access,
    new_folder,
    running,
)
from tests.processes import signal_to

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def publish(product: Product, table: str, ids: Sequence[str], query: str = "") -> None:
    body = {"events": [event(event_id, 1, number) for number, event_id in enumerate(ids)]}
    answer = product.ask("POST", f"/v1/tables/{table}/events{query}", body)
    assert answer.status_code in (200, 202), answer.text


def stored(product: Product, table: str) -> list[str]:
    return [row.event_id for row in read_rows(in_sqlite(product.data / "catalog.db"), table)]


def part(product: Product) -> dict[str, Any]:
    found: dict[str, Any] = (product.status().get("parts") or {}).get("pipeline") or {}
    return found


def test_health_is_degraded_while_the_jvm_is_stopped_and_events_wait() -> None:
    with new_folder("stopped") as folder, running(Product(folder / "data")) as product:
        product.up()
        product.declare("clicks", COLUMNS)
        publish(product, "clicks", ["a"], "?wait=visible&timeout_s=240")
        product.until_status("ok")
        jvm = product.part("jvm")
        signal_to(jvm, signal.SIGSTOP)
        try:
            publish(product, "clicks", ["b", "c"])
            product.until_status("degraded")
            eventually(lambda: "engine" in str(part(product).get("reason")), what="the engine being named")
            assert part(product)["report_age_seconds"] < part(product)["engine_silent_seconds"]
        finally:
            signal_to(jvm, signal.SIGCONT)
        product.until_status("ok")
        product.until_drained("clicks")
        assert product.part("jvm") == jvm, "it was not started anew"
        assert sorted(stored(product, "clicks")) == ["a", "b", "c"]


def ended(product: Parts, pipeline: subprocess.Popen[bytes]) -> bool:
    """Wait until the pipeline has ended, or has found what it dies of; whether it ended."""
    eventually(
        lambda: pipeline.poll() is not None or product.status()["tables"]["orders"]["dead_letters"],
        what="the end of a pipeline, or of the search",
        every=0.2,
    )
    return pipeline.poll() is not None


def test_an_event_that_kills_the_jvm_is_traced_while_another_table_commits() -> None:
    """In the supervisor's place: the pipeline is started again whenever it has ended."""
    with (
        new_folder("deadly") as folder,
        running_nats() as server,
        running(Parts(folder / "data", nats_access(server))) as product,
    ):
        product.gateway()
        for table in ("clicks", "orders"):
            product.declare(table, COLUMNS)
        publish(product, "orders", ["first", DEADLY])
        beside, committed = ["c0"], list[str]()
        publish(product, "clicks", beside)
        pipeline = product.run(module="tests.flow.deadly_pipeline")
        while ended(product, pipeline):
            assert "Spark's JVM" in product.said(pipeline), product.said(pipeline)[-3000:]
            assert len(beside) < 8, "it is never found"
            held = json.loads((product.data / "run" / "suspects.json").read_text())
            assert "main.orders" in held
            committed, before = stored(product, "clicks"), committed
            # In the first life, and so in the second, both are under suspicion alike.
            if len(beside) > 2:
                assert len(committed) > len(before), "the other table commits in every life"
            beside.append(f"c{len(beside)}")
            publish(product, "clicks", beside[-1:])
            pipeline = product.run(module="tests.flow.deadly_pipeline")
        product.until_drained("orders", "clicks")
        product.until_status("ok")
        assert stored(product, "orders") == ["first"] and sorted(stored(product, "clicks")) == sorted(beside)
        [letter] = product.ask("GET", "/v1/tables/orders/dead-letters").json()["dead_letters"]
        assert (letter["id"], letter["code"]) == (DEADLY, "engine_lost")
        assert len(beside) > 3 and pipeline.poll() is None
