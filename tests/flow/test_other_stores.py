"""The same story on other ground: the warehouse on S3 behind a network that fails, bus and catalog on Postgres."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pg8000.native
import pytest

from tests.contract.fault_proxy import Fault, FaultProxy, Kind
from tests.contract.seaweed import BUCKET, SeaweedServer
from tests.contract.servers import PostgresServer, running_postgres
from tests.flow.checker import Locate, in_sqlite, read_rows, scanned, verdict
from tests.flow.entity_writer import Writer, declare_things, seen
from tests.flow.producers import COLUMNS, Producers
from tests.flow.product import PATIENCE_SECONDS, Parts, Product, eventually, new_folder, running

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]
TABLES = ("clicks", "orders")
KILLED_AMID_FOLD = "after_fold_before_publish"


FOLDS = {
    "FRAZIL_PIPELINE__MAX_BATCH_AGE_SECONDS": "0.2",
    "FRAZIL_PIPELINE__FOLD_AGE_SECONDS": "0.5",
    # Once: the pipeline that comes after finds the trace of the first.
    "FRAZIL_CRASH_AT": f"{KILLED_AMID_FOLD}:2",
}


class Folded:
    """An entity whose second fold is killed between its stage and its publish."""

    def __init__(self, product: Product) -> None:
        self._product = product
        declare_things(product)
        self._writer = Writer(product)

    def until_killed(self) -> None:
        """Events that are folded, and more whose fold is not to be."""
        self._writer.send()
        eventually(self._unfolded_is(0), what="the first fold", every=0.2)
        self._writer.send()
        eventually(lambda: (self._product.trace / KILLED_AMID_FOLD).exists(), what="a kill amid a fold", every=0.1)
        self._writer.send()

    def check(self, locate: Locate, s3: Mapping[str, str] | None = None) -> None:
        """That the base holds what the events make, each key once: as a reader of the files finds it."""
        assert seen(self._product) == self._writer.expected()
        eventually(self._unfolded_is(0), what="the fold after the kill", every=0.2)
        assert seen(self._product, freshness="committed") == self._writer.expected()
        found = scanned(locate, "things", "k, a, n, _op", s3=s3)
        assert len({key for key, *_ in found}) == len(found)
        assert sorted([key, a, n] for key, a, n, op in found if op != "delete") == self._writer.expected()
        (events,) = scanned(locate, "things__history", "count(*), count(DISTINCT _id)", s3=s3)
        assert events == (60, 60)

    def _unfolded_is(self, wanted: int) -> Callable[[], bool]:
        def look() -> bool:
            told = self._product.status().get("tables", {}).get("things", {})
            return bool(told.get("unfolded") == wanted and told.get("lag", {}).get("events") == 0)

        return look


def more(producers: Producers, requests: int = 10) -> None:
    before = producers.acked()
    eventually(lambda: producers.acked() >= before + requests, what="acknowledged events")


@pytest.mark.s3
def test_on_s3_with_a_store_that_fails(seaweed: SeaweedServer, s3_proxy: FaultProxy) -> None:
    keys = seaweed.credentials
    environment = {
        "FRAZIL_WAREHOUSE__URL": f"s3://{BUCKET}/flow",
        "FRAZIL_WAREHOUSE__ENDPOINT": s3_proxy.url,
        "FRAZIL_WAREHOUSE__ACCESS_KEY_ID": keys["access_key_id"],
        "FRAZIL_WAREHOUSE__SECRET_ACCESS_KEY": keys["secret_access_key"],
    }
    direct = {
        "endpoint": f"127.0.0.1:{seaweed.port}",
        "key_id": keys["access_key_id"],
        "secret": keys["secret_access_key"],
    }
    with new_folder("s3") as folder:
        logs = folder / "producers"
        with running(Product(folder / "data", environment={**environment, **FOLDS})) as product:
            product.up()
            for table in TABLES:
                product.declare(table, COLUMNS)
            product.until_status("ok")
            folded = Folded(product)
            folded.until_killed()
            with Producers(product.url, product.token, TABLES, logs, events_per_request=10) as producers:
                more(producers)
                with s3_proxy.failing(Fault(Kind.SLOW_DOWN)) as overloaded:
                    eventually(lambda: len(overloaded.hits) > 5, what="requests answered with 503")
                    more(producers)
                with s3_proxy.failing(Fault(Kind.LOSE_REPLY, times=5, matches=lambda r: r.method == "PUT")) as lost:
                    eventually(lambda: len(lost.hits) == 5, what="five writes whose answer got lost")
                    more(producers)
                with s3_proxy.refusing():
                    down_at = time.monotonic()
                    product.kill("pipeline")
                    while time.monotonic() - down_at < 5:
                        more(producers, 5)
                with s3_proxy.failing(Fault(Kind.SLOW, seconds=0.5)):
                    more(producers)
            assert producers.statuses().keys() == {(202, "")}, "receipts do not need the store"
            product.until_status("ok")
            product.until_drained(*TABLES)
            locate = in_sqlite(product.data / "catalog.db")
            found = verdict(logs, {table: read_rows(locate, table, s3=direct) for table in TABLES})
            assert found.is_clean, str(found)
            assert locate("clicks").startswith("s3://")
            folded.check(locate, direct)
            assert found.stored >= found.acked > 0


@pytest.fixture
def two_servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    with running_postgres() as bus, running_postgres() as catalog:
        yield bus, catalog


def in_postgres(server: PostgresServer) -> Locate:
    """Tables of a Postgres catalog, by plain SQL."""

    def locate(table: str) -> str:
        words = server.credentials
        connection = pg8000.native.Connection(
            words["user"], host="127.0.0.1", port=server.port, password=words["password"], database="postgres"
        )
        try:
            ((location,),) = connection.run(
                "SELECT metadata_location FROM iceberg_tables"
                " WHERE catalog_name = 'frazil' AND table_namespace = 'main' AND table_name = :name",
                name=table,
            )
        finally:
            connection.close()
        return str(location)

    return locate


def test_separate_parts_with_bus_and_catalog_on_postgres(two_servers: tuple[PostgresServer, PostgresServer]) -> None:
    bus, catalog = two_servers
    access = {
        "FRAZIL_BUS__URL": bus.url,
        "FRAZIL_BUS__USER": bus.credentials["user"],
        "FRAZIL_BUS__PASSWORD": bus.credentials["password"],
    }
    environment = {
        "FRAZIL_CATALOG__URL": catalog.url,
        "FRAZIL_CATALOG__USER": catalog.credentials["user"],
        "FRAZIL_CATALOG__PASSWORD": catalog.credentials["password"],
    }
    with new_folder("cluster") as folder:
        logs = folder / "producers"
        with running(Parts(folder / "data", access, environment={**environment, **FOLDS})) as product:
            gateway = product.gateway()
            for table in TABLES:
                product.declare(table, COLUMNS)
            pipeline = product.pipeline()
            product.until_ready(pipeline)
            folded = Folded(product)
            folded.until_killed()
            assert pipeline.wait(PATIENCE_SECONDS) == -signal.SIGKILL
            pipeline = product.pipeline()
            with Producers(product.url, product.token, TABLES, logs, events_per_request=10) as producers:
                more(producers)
                product.end(gateway)
                gateway = product.gateway()
                more(producers)
                product.end(pipeline)
                pipeline = product.pipeline()
                more(producers)
                product.until_ready(pipeline)
                more(producers)
                catalog.kill()
                product.until_part("lake", "down")
                product.until_part("pipeline", "degraded")
                more(producers)  # receipts do not need the catalog
                catalog.start()
                product.until_status("ok")
                bus.kill()
                product.until_part("bus", "down")
                bus.start()
                more(producers)
            product.until_status("ok")
            product.until_drained(*TABLES)
            assert gateway.poll() is None and pipeline.poll() is None, "none of the outages ended a part"
            locate = in_postgres(catalog)
            found = verdict(logs, {table: read_rows(locate, table) for table in TABLES})
            assert found.is_clean, str(found)
            assert found.stored >= found.acked > 0
            folded.check(locate)
            assert not _secrets_in_logs(folder, bus, catalog)


def _secrets_in_logs(folder: Path, *servers: PostgresServer) -> list[str]:
    secrets = {server.credentials["password"] for server in servers}
    logs = [*folder.glob("*.out"), *folder.glob("data/journal/*"), *folder.glob("data/run/*")]
    assert logs
    return [path.name for path in logs if any(secret in path.read_text(errors="replace") for secret in secrets)]
