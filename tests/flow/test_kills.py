"""The embedded product under load, and one part of it killed, stopped or locked out; at the end all of them at random.

One product and one set of tables live through the whole file, so that each verdict is over everything that came before.
In `make soak` outages are of a minute and more parts are killed; `CHAOS_ROUNDS` in the environment says how many.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.checker import Verdict, in_sqlite, read_rows, verdict
from tests.flow.producers import COLUMNS, Producers
from tests.flow.product import Product, eventually, new_folder, running
from tests.processes import go_on, is_running, stop

pytestmark = [pytest.mark.slow, pytest.mark.spark]
TABLES = ("clicks", "orders")
ROUNDS, FULL_ROUNDS = 3, int(os.environ.get("CHAOS_ROUNDS", "12"))
OUTAGE_SECONDS, FULL_OUTAGE_SECONDS = 15.0, 60.0
LOCK_SECONDS, FULL_LOCK_SECONDS = 5.0, 10.0


class Embedded:
    def __init__(self, folder: Path) -> None:
        self.product = Product(folder / "data")
        self.logs = folder / "producers"

    def producers(self) -> Producers:
        return Producers(self.product.url, self.product.token, TABLES, self.logs, events_per_request=10)

    def verdict(self) -> Verdict:
        locate = in_sqlite(self.product.data / "catalog.db")
        return verdict(self.logs, {table: read_rows(locate, table) for table in TABLES})

    def proves_clean(self) -> None:
        self.product.until_drained(*TABLES)
        found = self.verdict()
        assert found.is_clean, str(found)
        assert found.stored >= found.acked > 0


@pytest.fixture(scope="module")
def shared() -> Iterator[Embedded]:
    with new_folder("kills") as folder:
        embedded = Embedded(folder)
        with running(embedded.product) as product:
            product.up()
            for table in TABLES:
                product.declare(table, COLUMNS)
            yield embedded


@pytest.fixture
def embedded(shared: Embedded) -> Embedded:
    """The product up and well, whatever the test before did to it."""
    shared.product.up()
    shared.product.until_status("ok")
    return shared


def more(producers: Producers, requests: int = 10) -> None:
    """Wait until so many more requests were acknowledged."""
    before = producers.acked()
    eventually(lambda: producers.acked() >= before + requests, what="acknowledged events")


def test_a_second_start_on_the_same_directory_is_refused_and_harms_nothing(embedded: Embedded) -> None:
    before = embedded.product.everything()
    refused = embedded.product.cli("up")
    assert refused.returncode == 1 and "already running" in refused.stderr
    assert embedded.product.everything() == before and embedded.product.health()["status"] == "ok"


@pytest.mark.parametrize("part", ["bus", "gateway", "jvm"])
def test_a_killed_part_comes_back_by_itself(embedded: Embedded, part: str) -> None:
    product = embedded.product
    with embedded.producers() as producers:
        more(producers)
        killed = product.kill(part)
        eventually(lambda: product.part(part) != killed, what=f"a new {part}")
        more(producers)
    assert product.is_up()
    product.until_status("ok")
    embedded.proves_clean()


def test_a_killed_supervisor_takes_its_parts_with_it_and_the_next_start_recovers(embedded: Embedded) -> None:
    product = embedded.product
    with embedded.producers() as producers:
        more(producers)
        parts = [product.part(name) for name in ("bus", "gateway", "pipeline", "jvm")]
        product.kill("supervisor")
        eventually(lambda: not any(map(is_running, parts)), what="the end of the parts", seconds=60)
        product.up()
        more(producers)
    embedded.proves_clean()


def test_everything_killed_at_once(embedded: Embedded) -> None:
    product = embedded.product
    with embedded.producers() as producers:
        more(producers)
        product.kill_everything()
        product.up()
        more(producers)
    embedded.proves_clean()


def test_a_bus_that_stands_still_is_told_and_loses_nothing(embedded: Embedded, full_length: bool) -> None:
    """Stopped, not ended: connections stay, and nothing answers."""
    product = embedded.product
    with embedded.producers() as producers:
        more(producers)
        bus = product.part("bus")
        stop(bus)
        stopped_at = time.monotonic()
        try:
            product.until_part("bus", "down")
            assert product.health()["status"] == "degraded"
            outage_seconds = FULL_OUTAGE_SECONDS if full_length else OUTAGE_SECONDS
            time.sleep(max(0.0, outage_seconds - (time.monotonic() - stopped_at)))
            # On a busy machine the first answers may take as long as that.
            eventually(lambda: _refused_since(producers, stopped_at), what="refusals while the bus is away")
            went_on_at = time.monotonic()
        finally:
            go_on(bus)
        more(producers)
    during = [a for a in producers.answers() if stopped_at < a.asked_at and a.answered_at < went_on_at]
    assert during, "nobody asked meanwhile"
    # That events sent before are there is true without the bus, and may be said.
    assert not [answer for answer in during if answer.accepted], "a receipt while the bus is away"
    refused = [answer for answer in during if answer.status != 202]
    assert {answer.status for answer in refused} == {503}, {(a.code, a.answered_at - a.asked_at) for a in refused}
    assert all(int(answer.retry_after or 0) >= 1 for answer in refused)
    product.until_status("ok")
    embedded.proves_clean()


def _refused_since(producers: Producers, began: float) -> bool:
    return any(answer.asked_at > began and answer.status != 202 for answer in producers.answers())


def test_a_catalog_that_another_program_keeps_locked(embedded: Embedded, full_length: bool) -> None:
    """Receipts do not need the catalog. Commits wait for it."""
    product = embedded.product
    catalog = sqlite3.connect(product.data / "catalog.db", timeout=60, isolation_level=None)
    with embedded.producers() as producers:
        more(producers)
        catalog.execute("BEGIN EXCLUSIVE")
        try:
            locked_at = time.monotonic()
            stored = embedded.verdict().stored
            while time.monotonic() - locked_at < (FULL_LOCK_SECONDS if full_length else LOCK_SECONDS):
                more(producers, 5)
            assert embedded.verdict().stored == stored, "a commit went past the lock"
        finally:
            catalog.execute("ROLLBACK")
            catalog.close()
    assert producers.statuses().keys() == {(202, "")}
    embedded.proves_clean()
    product.until_status("ok")


def test_random_parts_killed_at_random_moments(embedded: Embedded, random_seed: int, full_length: bool) -> None:
    lucky = random.Random(random_seed)
    product = embedded.product
    with embedded.producers() as producers:
        for _ in range(FULL_ROUNDS if full_length else ROUNDS):
            time.sleep(lucky.uniform(0.2, 3.0))
            name = lucky.choice(["bus", "gateway", "pipeline", "jvm", "supervisor", "everything"])
            print(f"kill {name}")
            if name == "everything":
                product.kill_everything()
            else:
                product.kill(name)
            # A vital part killed before it was ever ready ends the start; a person then starts again.
            eventually(lambda: _started(product), what="a product that is up", every=0.2)
        more(producers)
    product.until_status("ok")
    embedded.proves_clean()


def _started(product: Product) -> bool:
    product.up(wait=False)
    return bool(product.health())
