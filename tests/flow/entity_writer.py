"""Writes events about a few keys of one entity, and knows what they make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.entity_model import Model
from tests.flow.product import Product

START = datetime(2026, 1, 1, tzinfo=UTC)


def declare_things(product: Product) -> None:
    product.declare("things", {"k": "long", "a": "string", "n": "long"}, kind="entity", key=["k"])


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
            choice: dict[str, dict[str, Any]] = {
                "upsert": {"a": f"v{n}", "n": n},
                "patch": {"n": None if n % 3 else n},
                "delete": {},
            }
            data = choice[op]
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
