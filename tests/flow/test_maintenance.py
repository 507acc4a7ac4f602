"""Tables are looked after while they are written and read, and by hand; every live read stays right."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.flow.product import Product, eventually, new_folder, running
from tests.flow.readers import COLUMNS, Reader, Readers

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]

OFTEN = {
    "FRAZIL_PIPELINE__MAX_BATCH_AGE_SECONDS": "0.5",
    "FRAZIL_PIPELINE__SNAPSHOT_BUDGET": "5",
    "FRAZIL_MAINTENANCE__INTERVAL_SECONDS": "1",
    "FRAZIL_MAINTENANCE__MIN_SMALL_FILES": "5",
    "FRAZIL_MAINTENANCE__MAX_MANIFESTS": "4",
    # Longer than any query of this test takes, as the default is longer than any query may take.
    "FRAZIL_MAINTENANCE__KEEP_SECONDS": "20",
    "FRAZIL_MAINTENANCE__ORPHAN_INTERVAL_SECONDS": "2",
    "FRAZIL_MAINTENANCE__APPLY_RETENTION": "true",
}


def entries(product: Product, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.ask("GET", "/v1/journal?limit=1000").json()["entries"]
    return [entry for entry in found if entry["kind"] == kind]


def told(product: Product, *words: str) -> dict[str, Any]:
    done = product.cli(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def _let_rows_grow_old(product: Product) -> None:
    """Rows that are beyond their years go by themselves, and no others, from the moment that years are declared."""
    today = datetime.now(UTC).date()
    days = [date(2001, 1, 1), date(2001, 1, 2), today - timedelta(days=300), today]
    product.declare("aged", {"d": "date", "n": "long"}, partition=["d"])
    events = [{"id": f"e{n}", "data": {"d": day.isoformat(), "n": n}} for n, day in enumerate(days)]
    answer = product.ask("POST", "/v1/tables/aged/events", {"events": events})
    assert answer.status_code == 202, answer.text
    product.until_drained("aged")
    assert product.cli("tables", "alter", "aged", "--retention-years", "1").returncode == 0

    def numbers() -> list[list[int]]:
        found: list[list[int]] = product.ask("POST", "/v1/query", {"sql": "SELECT n FROM aged ORDER BY n"}).json()[
            "rows"
        ]
        return found

    eventually(lambda: numbers() == [[2], [3]], what="the end of the old rows", every=0.2)
    eventually(lambda: [e for e in entries(product, "maintenance") if e["what"] == "retention"], what="a word about it")
    (entry,) = [e for e in entries(product, "maintenance") if e["what"] == "retention"]
    assert (entry["rows"], entry["files"], entry["partitions"]) == (2, 2, 2)


def test_maintenance_beside_writers_and_readers() -> None:
    with new_folder("maintain") as folder, running(Product(folder / "data", environment=OFTEN)) as product:
        product.up()
        product.declare("series", COLUMNS)
        # Spark is still starting: the command waits for it.
        assert product.cli("compact", "series").stdout == "nothing to do\n"
        readers = Readers(product.url, product.token, writers=2, live=2)
        readers.start()
        product.until_part("pipeline", "ok")

        def kinds() -> set[str]:
            return {entry["what"] for entry in entries(product, "maintenance")}

        wanted = {"compact", "rewrite_manifests", "remove_orphans"}
        eventually(lambda: wanted <= kinds(), what="maintenance", every=1.0)
        _let_rows_grow_old(product)
        before = readers.reads
        product.kill("pipeline")
        product.until_part("pipeline", "ok")
        eventually(lambda: readers.reads > before + 50, what="reads after a kill")
        health = told(product, "tables", "health", "series")
        assert health["files"] >= 1 and health["last_compaction_at"]
        shown = product.cli("tables", "health").stdout
        assert "verdict" in shown and re.search(r"^series +\d+ +\d+ ", shown, re.MULTILINE), shown
        assert product.cli("orphans", "series", "--dry-run").stdout.endswith("0 files, 0 B\n")
        plan = told(product, "compact", "series", "--dry-run")
        assert plan["table"] == "series" and "id" not in plan
        done = told(product, "compact", "series", "--sort", "writer,n")
        assert done["state"] == "done" and done["steps"][0]["rows"] > 0
        assert told(product, "expire", "series")["state"] == "done"
        readers.stop()
        product.until_drained("series")
        assert readers.wrong() == []
        final = Reader(product.url, product.token, readers.writers, threading.Event(), freshness="committed")
        with httpx.Client(headers={"Authorization": f"Bearer {product.token}"}, timeout=60, trust_env=False) as http:
            final.read(http)
        assert final.reads == 1 and final.wrong == []
        for writer in readers.writers:
            assert writer.acked <= final.seen[writer.number] <= writer.sent
        retired = [entry for entry in entries(product, "maintenance") if entry["what"] == "retention"]
        assert [entry["table"] for entry in retired] == ["main.aged"], "once a day, and only where years are declared"
        assert not [entry for entry in entries(product, "maintenance_failed") if entry["code"].endswith("audit_failed")]
        assert product.stop() == 0
