"""Every declared type through the whole product: published over HTTP, read live, committed by Spark, read again."""

from __future__ import annotations

import pytest

from tests.flow.product import Product, new_folder, running
from tests.gateway.query.values import TYPES, check, sent, some_rows

pytestmark = [pytest.mark.slow, pytest.mark.spark]
FORMATS = ("json", "ndjson", "csv", "arrow")


def test_values_come_back_as_they_were_sent() -> None:
    with new_folder("types") as folder, running(Product(folder / "data")) as product:
        product.up()
        product.declare("things", {name: kind for name, (kind, *_) in TYPES.items()})
        rows = [row for seed in range(5) for row in some_rows(100 + seed, 60)]
        events = [{"id": f"e{number}", "data": data} for number, data in enumerate(sent(rows))]
        receipt = product.ask("POST", "/v1/tables/things/events", {"events": events})
        assert receipt.status_code == 202, receipt.text
        sql = f"SELECT {', '.join(TYPES)} FROM things ORDER BY _seq"

        def answers(**freshness: object) -> dict[str, bytes]:
            body = {"sql": sql, "timeout_s": 120, **freshness}
            return {
                format_: product.ask("POST", "/v1/query", {**body, "format": format_}).content for format_ in FORMATS
            }

        check(rows, answers(freshness="live"))
        product.until_drained("things")
        token = receipt.json()["token"]
        check(rows, answers(freshness="committed", min_token=token))
        check(rows, answers(freshness="live"))
