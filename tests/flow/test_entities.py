"""An entity in the whole product: written, read, committed, folded, compacted and killed, all at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.entity_model import Model
from tests.flow.product import Product, eventually, new_folder, running

pytestmark = [pytest.mark.slow, pytest.mark.spark]

OFTEN = {
    "FRAZIL_PIPELINE__MAX_BATCH_AGE_SECONDS": "0.2",
    "FRAZIL_PIPELINE__FOLD_AGE_SECONDS": "1",
    "FRAZIL_PIPELINE__SNAPSHOT_BUDGET": "5",
    "FRAZIL_MAINTENANCE__INTERVAL_SECONDS": "1",
    "FRAZIL_MAINTENANCE__MIN_SMALL_FILES": "3",
}
START = datetime(2026, 1, 1, tzinfo=UTC)


class Writer:
    """Sends events about a few keys, and knows what they make."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._sent = 0
        self.model = Model(("k",), ("a", "n"))

    def send(self, count: int = 20) -> str:
        body: list[dict[str, Any]] = []
        for _ in range(count):
            self._sent += 1
            n = self._sent
            op = ("upsert", "patch", "patch", "delete")[n * 7 % 4]
            ts = START + timedelta(seconds=n - (30 if n % 5 == 0 else 0))
            given: dict[str, dict[str, Any]] = {
                "upsert": {"a": f"v{n}", "n": n},
                "patch": {"n": None if n % 3 else n},
                "delete": {},
            }
            data = given[op]
            body.append({"id": f"e{n}", "op": op, "ts": ts.isoformat(), "data": {"k": n * 13 % 37, **data}})
            event = {"_op": op, "_ts": ts, "_patch": list(data), "k": n * 13 % 37, "a": None, "n": None, **data}
            self.model.take(event)
        answer = self._product.ask("POST", "/v1/tables/things/events", {"events": body})
        assert answer.status_code == 202, answer.text
        token: str = answer.json()["token"]
        return token

    def expected(self) -> list[list[Any]]:
        return [[key, row["a"], row["n"]] for (key,), row in sorted(self.model.there().items())]


def seen(product: Product, **more: Any) -> list[list[Any]]:
    body = {"sql": "SELECT k, a, n FROM things ORDER BY k", **more}
    answer = product.ask("POST", "/v1/query", body)
    assert answer.status_code == 200, answer.text
    rows: list[list[Any]] = answer.json()["rows"]
    return rows


def folds(product: Product) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.ask("GET", "/v1/journal?kind=fold&limit=1000").json()["entries"]
    return found


def test_the_state_is_right_at_every_moment() -> None:
    with new_folder("entities") as folder, running(Product(folder / "data", environment=OFTEN)) as product:
        product.up()
        product.declare("things", {"k": "long", "a": "string", "n": "long"}, kind="entity", key=["k"])
        writer = Writer(product)
        writer.send()
        assert seen(product) == writer.expected(), "before Spark has started"
        product.until_part("pipeline", "ok")

        def written_and_read() -> None:
            token = writer.send()
            assert seen(product) == writer.expected()
            assert seen(product, freshness="committed", min_token=token, timeout_s=120) == writer.expected()

        for wanted in (3, 5):

            def folded(wanted: int = wanted) -> bool:
                written_and_read()
                return len(folds(product)) >= wanted

            eventually(folded, what=f"{wanted} folds", every=0.3)
            product.kill("pipeline")
            product.until_part("pipeline", "ok")
        written_and_read()
        eventually(
            lambda: product.ask("GET", "/v1/status").json()["tables"]["things"]["unfolded"] == 0, what="the last fold"
        )
        assert seen(product, freshness="committed") == writer.expected()
        entry = folds(product)[0]
        assert entry["table"] == "main.things" and {"rows", "keys", "snapshot", "watermark", "seconds"} <= entry.keys()
        for name in ("things", "things__history"):
            assert product.cli("compact", name).returncode == 0
        assert seen(product) == seen(product, freshness="committed") == writer.expected()
        shown = product.cli("tables", "rows", "things", "--key", "k=13")
        assert shown.returncode == 0 and "upsert" in shown.stdout, shown.stderr
        assert product.stop() == 0
