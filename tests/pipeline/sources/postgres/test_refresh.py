"""Refreshes on a real Postgres and a real lake; tasks run in this process, events are kept by a stand-in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Conflict, FrazilError
from frazil.events.declaration import parse_table
from frazil.lake.bulk import lineage, load_records
from frazil.lake.catalog import Lake, open_lake
from frazil.pipeline import SourceSettings
from frazil.pipeline.sources.postgres import PostgresLoads
from frazil.registry import Job, job_status, submit_job
from frazil.storage import Warehouse
from tests.contract.servers import PostgresServer
from tests.kills import address, finished, killed_at
from tests.pipeline.in_process import FolderSender, KeptSender
from tests.pipeline.sources.postgres.archive_probe import do_postgres_jobs, tools
from tests.pipeline.sources.postgres.conftest import psql


@dataclass(frozen=True)
class Place:
    folder: Path
    lake: Lake
    server: PostgresServer
    schema: str
    sender: KeptSender = field(default_factory=KeptSender)

    def sql(self, *statements: str) -> None:
        psql(self.server, f"SET search_path TO {self.schema}", *statements)

    def ask(self, what: str, table: str, **asked: Any) -> Job:
        params = {"source": "shop", "what": what, "tables": [table], **asked}
        return submit_job(self.lake.registry, "postgres", "shop", params, asked_by="someone")

    def do(self, job: Job) -> dict[str, Any]:
        settings = SourceSettings.model_validate({"dsn_file": self.folder / "dsn", "schema": self.schema})
        loads = PostgresLoads(tools(self.lake, sender=self.sender), {"shop": settings}, reports=self.folder / "reports")
        return loads.run(job, lambda progress: None)

    def load(self, what: str, table: str, **asked: Any) -> dict[str, Any]:
        return self.do(self.ask(what, table, **asked))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = self.lake.table(f"main.{table}").iceberg.scan().to_arrow().to_pylist()
        return sorted(tuple(row[column] for column in columns) for row in found)


@pytest.fixture
def place(tmp_path: Path, server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Place]:
    schema = "r" + re.sub(r"\W", "_", request.node.name.lower())[-50:]
    psql(server, f"DROP SCHEMA IF EXISTS {schema} CASCADE", f"CREATE SCHEMA {schema}")
    (tmp_path / "dsn").touch(0o600)
    (tmp_path / "dsn").write_text(f"postgresql://frazil:not-a-secret@127.0.0.1:{server.port}/postgres")
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    place = Place(tmp_path, lake, server, schema)
    place.sql(
        "CREATE TABLE persons (id int PRIMARY KEY, name text, updated_at timestamptz)",
        "INSERT INTO persons VALUES (1, 'Ada', '2026-11-01Z'), (2, 'Grace', '2026-11-02Z')",
    )
    yield place
    lake.close()


def test_a_log_gets_what_is_new(place: Place) -> None:
    first = place.load("incremental", "persons", cursor="updated_at")
    assert (first["rows"], first["table"]) == (2, "persons")
    place.sql("INSERT INTO persons VALUES (3, 'Barbara', '2026-11-03Z')", "UPDATE persons SET name = 'x' WHERE id = 1")
    second = place.load("incremental", "persons", cursor="updated_at")
    assert second["rows"] == 1, "what does not move the cursor is not seen"
    assert place.load("incremental", "persons", cursor="updated_at")["rows"] == 0
    assert place.rows("persons", "id", "name", "_source", "_actor", "_op") == [
        (1, "Ada", "postgres:shop/persons", "someone", "insert"),
        (2, "Grace", "postgres:shop/persons", "someone", "insert"),
        (3, "Barbara", "postgres:shop/persons", "someone", "insert"),
    ]
    (entry,) = lineage(load_records(place.lake.registry, place.lake.table("main.persons").uuid))
    assert (entry["job"], entry["loads"], entry["rows"]) == ("incremental postgres", 3, 3)


def test_an_overlap_finds_what_came_late_and_repeats_nothing(place: Place) -> None:
    place.load("incremental", "persons", cursor="updated_at", overlap=7 * 86_400)
    place.sql(
        "INSERT INTO persons VALUES (3, 'late', '2026-11-01 12:00Z')",
        "UPDATE persons SET name = 'Ada L.', updated_at = '2026-11-05Z' WHERE id = 1",
    )
    told = place.load("incremental", "persons", cursor="updated_at", overlap=7 * 86_400)
    assert (told["rows"], told["repeated"]) == (2, 1)
    assert place.rows("persons", "id", "name") == [(1, "Ada"), (1, "Ada L."), (2, "Grace"), (3, "late")]


def test_rows_without_a_cursor_value_are_told(place: Place) -> None:
    place.sql("INSERT INTO persons VALUES (9, 'never', NULL)")
    assert place.load("incremental", "persons", cursor="updated_at")["null_cursor"] == 1
    assert len(place.rows("persons", "id")) == 2


def test_a_log_is_replaced_as_a_whole(place: Place) -> None:
    place.load("full", "persons", into="people")
    place.sql("DELETE FROM persons WHERE id = 1", "INSERT INTO persons VALUES (4, 'Dora', NULL)")
    assert place.load("full", "persons", into="people")["rows"] == 2
    assert place.rows("people", "id", "name") == [(2, "Grace"), (4, "Dora")]


def test_an_entity_gets_upserts(place: Place) -> None:
    told = place.load("incremental", "persons", cursor="updated_at", kind="entity", overlap=7 * 86_400)
    assert told["upserts"] == 2 and told["token"]
    spec = place.lake.table("main.persons").spec
    assert (spec.kind, spec.key) == ("entity", ("id",))
    place.sql("UPDATE persons SET name = 'Ada L.', updated_at = '2026-11-05Z' WHERE id = 1")
    place.load("incremental", "persons", cursor="updated_at", overlap=7 * 86_400)
    place.sql("UPDATE persons SET name = 'Ada', updated_at = '2026-11-06Z' WHERE id = 1")
    place.load("incremental", "persons", cursor="updated_at", overlap=7 * 86_400)
    sent = [(row["_op"], row["id"], row["name"]) for row in place.sender.rows]
    assert sent == [("upsert", 1, "Ada"), ("upsert", 2, "Grace"), ("upsert", 1, "Ada L."), ("upsert", 1, "Ada")], (
        "what is read again has the id it had; a value that comes back has another"
    )


def test_columns_that_are_added_follow_the_policy(place: Place) -> None:
    place.load("incremental", "persons", cursor="updated_at")
    place.sql("ALTER TABLE persons ADD COLUMN mail text", "INSERT INTO persons VALUES (5, 'e', '2026-12-01Z', 'e@x')")
    place.load("incremental", "persons", cursor="updated_at")
    assert place.rows("persons", "id", "mail")[-1] == (5, "e@x")
    strict = parse_table({"name": "strict", "columns": {"id": "int"}})
    place.lake.create(strict, stream="strict", identity="i")
    with pytest.raises(Conflict) as refused:
        place.load("full", "persons", into="strict")
    assert refused.value.code == "schema_drift" and "mail" in refused.value.details["columns"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "kind"),
    [
        ("after_refresh_read", "log"),
        ("before_load_publish", "log"),
        ("after_load_publish", "log"),
        ("after_refresh_publish", "log"),
        ("amid_refresh_sent", "entity"),
        ("after_refresh_sent", "entity"),
    ],
)
def test_a_refresh_that_is_killed_is_finished_and_brings_each_row_once(place: Place, point: str, kind: str) -> None:
    job = place.ask("incremental", "persons", cursor="updated_at", kind=kind)
    words = address(place.lake), place.folder / "dsn", place.schema, place.folder / "sent"
    killed_at(point, do_postgres_jobs, *words)
    for _ in range(2):
        finished(do_postgres_jobs, *words)
    assert job_status(place.lake.registry, job.id)["rows"] == 2
    place.sql("INSERT INTO persons VALUES (3, 'c', '2026-11-09Z')")
    place.ask("incremental", "persons", cursor="updated_at")
    finished(do_postgres_jobs, *words)
    if kind == "log":
        assert place.rows("persons", "id") == [(1,), (2,), (3,)], "the cursor was kept as well"
    else:
        assert sorted(row["id"] for row in FolderSender(place.folder / "sent").rows) == [1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"what": "incremental", "table": "persons", "cursor": "name"}, "bad_cursor_column"),
        ({"what": "incremental", "table": "persons"}, "bad_load"),
        ({"what": "full", "table": "persons", "cursor": "id"}, "bad_load"),
        ({"what": "full", "table": "absent"}, "postgres_table_missing"),
        ({"what": "full", "table": "*"}, "bad_load"),
        ({"what": "full", "table": "keyless", "kind": "entity"}, "key_missing"),
        ({"what": "incremental", "table": "keyless", "cursor": "n", "overlap": 1}, "key_missing"),
    ],
)
def test_what_makes_no_sense_is_refused(place: Place, asked: dict[str, Any], code: str) -> None:
    place.sql("CREATE TABLE keyless (n int)")
    with pytest.raises(FrazilError) as refused:
        place.load(**asked)
    assert refused.value.code == code
