"""A real Postgres for these tests, started once; each test has a schema of its own in it."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from frazil.pipeline.sources.postgres.dsn import Dsn, parse_dsn
from frazil.pipeline.sources.postgres.exported_snapshot import ExportedSnapshot, exported
from frazil.pipeline.sources.postgres.read import TablePlan, plan_table, read_range
from frazil.pipeline.sources.postgres.source_tables import SourceTable, select
from frazil.pipeline.sources.postgres.table_ranges import ranges_of
from frazil.pipeline.sources.postgres.type_mapping import LossPolicy
from tests.contract.servers import PostgresServer, running_postgres

_numbers = itertools.count(1)
EXTENSIONS = ("citext", "hstore", "ltree", "postgres_fdw")


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running_postgres(options={"fsync": "off", "autovacuum": "off"}) as running:
        psql(running, *(f"CREATE EXTENSION {name}" for name in EXTENSIONS))
        yield running


def psql(server: PostgresServer, *statements: str, database: str = "postgres") -> str:
    """Run statements with Postgres' own client, each in a transaction of its own."""
    done = subprocess.run(
        ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-", "-h", "127.0.0.1", "-p", str(server.port)],
        input=";\n".join(statements) + ";\n",
        env={
            "PATH": os.environ["PATH"],
            "PGUSER": "frazil",
            "PGPASSWORD": "not-a-secret",
            "PGDATABASE": database,
            "PGTZ": "Asia/Kolkata",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Source:
    """A schema of the server, and the ways a test reads it."""

    server: PostgresServer
    schema: str
    dsn: Dsn

    def run(self, *statements: str) -> str:
        return psql(self.server, f"SET search_path = {self.schema}, public", *statements)

    def describe(self, name: str) -> SourceTable:
        with exported(self.dsn, select(self.dsn, self.schema, [name])) as snapshot:
            assert snapshot.refused == ()
            return snapshot.tables[0]

    def read(self, name: str, loss_policy: LossPolicy | None = None, *, range_bytes: int = 64 << 20) -> pa.Table:
        return self.read_all([name], loss_policy, range_bytes=range_bytes)[name]

    def read_all(
        self, names: Sequence[str], loss_policy: LossPolicy | None = None, *, range_bytes: int = 64 << 20
    ) -> dict[str, pa.Table]:
        with exported(self.dsn, select(self.dsn, self.schema, names)) as snapshot:
            assert snapshot.refused == ()
            read = {
                table.relation.name: read_table(snapshot, table, plan_table(table, str.lower, loss_policy), range_bytes)
                for table in snapshot.tables
            }
            snapshot.check()
        return read


def read_table(
    snapshot: ExportedSnapshot, table: SourceTable, plan: TablePlan, range_bytes: int = 64 << 20
) -> pa.Table:
    batches = [
        batch
        for within in ranges_of(table, range_bytes)
        for batch in read_range(snapshot.dsn, snapshot.snapshot_id, plan, within)
    ]
    return pa.Table.from_batches(batches, plan.schema)


def dsn_of(server: PostgresServer, **more: str) -> Dsn:
    words = {"user": "frazil", "password": "not-a-secret", "dbname": "postgres", **more}
    text = f"host=127.0.0.1 port={server.port} " + " ".join(f"{k}='{v}'" for k, v in words.items())
    return parse_dsn(text, "a test")


@pytest.fixture
def source(server: PostgresServer) -> Iterator[Source]:
    schema = f"s{next(_numbers)}"
    psql(server, f"CREATE SCHEMA {schema}")
    yield Source(server, schema, dsn_of(server))
    psql(server, "SET client_min_messages = warning", f"DROP SCHEMA {schema} CASCADE")
