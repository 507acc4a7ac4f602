"""Real stores for the whole test process: a Postgres for the catalog, an S3 server, and a proxy in front that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from frazil.bus import Stream
from frazil.lake.catalog import Lake, LakeTable, open_lake
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.pipeline.session import catalog_settings
from frazil.storage import Warehouse
from tests.contract.fault_proxy import FaultProxy, running_proxy
from tests.contract.seaweed import SeaweedServer, running_seaweed
from tests.contract.servers import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def catalog_postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def seaweed() -> Iterator[SeaweedServer]:
    with running_seaweed() as server:
        yield server


@pytest.fixture(scope="session")
def s3_proxy(seaweed: SeaweedServer) -> Iterator[FaultProxy]:
    with running_proxy(seaweed.port) as proxy:
        yield proxy


@dataclass(frozen=True)
class Store:
    """A catalog and a warehouse, opened by PyIceberg and, in sessions of their own, by the one Spark of the process."""

    lake: Lake
    session: SparkSession
    settings: dict[str, str]

    def target(self, table: LakeTable) -> SparkCommitTarget:
        return StoreTarget(self, table.name)

    def committer(self, table: LakeTable, stream: Stream, target: SparkCommitTarget | None = None) -> Committer:
        limits = BatchLimits(max_age_seconds=0.0)
        return Committer(target or self.target(table), stream, window_seconds=86_400.0, limits=limits)


class StoreTarget(SparkCommitTarget):
    """A target in a session that was told of another catalog than the one Spark was started with."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(store.lake, name, store.session)
        for key, value in store.settings.items():
            self._session.conf.set(key, value)


def open_store(
    session: SparkSession, name: str, url: str, warehouse: Warehouse, *, user: str = "", password: str = ""
) -> Store:
    lake = open_lake(url, warehouse, name=name, user=user, password=password)
    return Store(lake, session, catalog_settings(name, url, warehouse, user=user, password=password))


def duckdb_rows(
    table: LakeTable, warehouse: Warehouse, columns: str = "_seq, _id", *, order: str = "_seq"
) -> list[tuple[object, ...]]:
    """The rows as a library finds them that shares no code with the writers, in the order of the stream."""
    with duckdb.connect() as connection:
        for extension in ("httpfs", "avro", "iceberg"):
            connection.load_extension(str(_extension(extension)))
        if warehouse.is_s3:
            connection.execute(
                "CREATE SECRET (TYPE s3, KEY_ID $key, SECRET $secret, REGION $region, ENDPOINT $endpoint, "
                "URL_STYLE 'path', USE_SSL false)",
                {
                    "key": warehouse.access_key_id,
                    "secret": warehouse.secret_access_key,
                    "region": warehouse.region,
                    "endpoint": (warehouse.endpoint or "").removeprefix("http://"),
                },
            )
        query = f"SELECT {columns} FROM iceberg_scan($file) ORDER BY {order}"
        return connection.execute(query, {"file": table.metadata_location}).fetchall()


def _extension(name: str) -> Path:
    module = __import__(f"duckdb_extension_{name}")
    (found,) = Path(str(module.__file__)).parent.rglob(f"{name}.duckdb_extension")
    return found
