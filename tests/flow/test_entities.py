"""An entity in the whole product: written, read, committed, folded, compacted and killed, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.entity_writer import Writer, declare_things, seen
from tests.flow.product import Product, eventually, new_folder, running

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]

OFTEN = {
    "FRAZIL_PIPELINE__MAX_BATCH_AGE_SECONDS": "0.2",
    "FRAZIL_PIPELINE__FOLD_AGE_SECONDS": "1",
    "FRAZIL_PIPELINE__SNAPSHOT_BUDGET": "5",
    "FRAZIL_MAINTENANCE__INTERVAL_SECONDS": "1",
    "FRAZIL_MAINTENANCE__MIN_SMALL_FILES": "3",
}


def folds(product: Product) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.ask("GET", "/v1/journal?kind=fold&limit=1000").json()["entries"]
    return found


def test_the_state_is_right_at_every_moment() -> None:
    with new_folder("entities") as folder, running(Product(folder / "data", environment=OFTEN)) as product:
        product.up()
        declare_things(product)
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
