"""The nightly archive on a real Postgres and a real lake; its tasks run in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Unavailable
from frazil.lake.bulk import lineage, load_records
from frazil.lake.catalog import Lake, open_lake
from frazil.pipeline import MailSettings, SourceSettings
from frazil.pipeline.sources.postgres import ArchiveTrigger, PostgresLoads
from frazil.registry import Job, finish_job, job_status, open_jobs, submit_job
from frazil.storage import Warehouse
from tests.contract.servers import PostgresServer
from tests.flow.mailbox import Guard, certificate, running_mailbox
from tests.kills import address, finished, killed_at
from tests.pipeline.in_process import InProcessTasks
from tests.pipeline.sources.postgres.archive_probe import do_postgres_jobs, tools
from tests.pipeline.sources.postgres.conftest import psql

MONDAY, TUESDAY = date(2026, 11, 16), date(2026, 11, 17)


@dataclass(frozen=True)
class Place:
    folder: Path
    lake: Lake
    server: PostgresServer
    schema: str

    @property
    def settings(self) -> SourceSettings:
        dsn_file = self.folder / "dsn"
        if not dsn_file.exists():
            dsn_file.touch(0o600)
            dsn_file.write_text(f"postgresql://frazil:not-a-secret@127.0.0.1:{self.server.port}/postgres")
        return SourceSettings.model_validate(
            {"dsn_file": dsn_file, "schema": self.schema, "range_bytes": 1 << 20, "retention_years": 10}
        )

    def sql(self, *statements: str) -> None:
        psql(self.server, f"SET search_path TO {self.schema}", *statements)

    def ask(self, night: date, **asked: Any) -> Job:
        params = {"source": "shop", "run_date": night.isoformat(), **asked}
        return submit_job(self.lake.registry, "postgres", "shop", params)

    def archive(self, night: date, **asked: Any) -> dict[str, Any]:
        job = self.ask(night, **asked)
        told = self.loads().run(job, lambda progress: None)
        finish_job(self.lake.registry, job, {"state": "done"})
        return told

    def loads(self, tasks: InProcessTasks | None = None, mail: MailSettings | None = None) -> PostgresLoads:
        reports = self.folder / "reports"
        return PostgresLoads(tools(self.lake, tasks=tasks), {"shop": self.settings}, reports=reports, mail=mail)

    def rows(self, table: str, night: date | None = None, *, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        found = self.lake.table(f"archive.{table}").iceberg.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        return sorted(
            (row for row in found if night in (None, row["dt"])), key=lambda row: (row["dt"], str(row.get("id")))
        )

    def line(self, report: dict[str, Any], table: str) -> dict[str, Any]:
        return next(line for line in report["tables"] if line["table"] == table)


@pytest.fixture
def place(tmp_path: Path, server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Place]:
    schema = "a" + re.sub(r"\W", "_", request.node.name.lower())[-50:]
    psql(server, f"DROP SCHEMA IF EXISTS {schema} CASCADE", f"CREATE SCHEMA {schema}")
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    place = Place(tmp_path, lake, server, schema)
    place.sql(
        "CREATE TABLE documents (id bigint PRIMARY KEY, title text, amount numeric(10,2))",
        "INSERT INTO documents SELECT n, 'document ' || n, n / 4.0 FROM generate_series(1, 20) n",
        "CREATE TABLE persons (id int PRIMARY KEY, name text)",
        "INSERT INTO persons VALUES (1, 'Ada'), (2, 'Grace')",
    )
    yield place
    lake.close()


def test_each_night_is_a_partition_and_a_snapshot(place: Place) -> None:
    first = place.archive(MONDAY)
    monday = place.lake.table("archive.documents").snapshot_id
    place.sql("DELETE FROM documents WHERE id > 15", "UPDATE documents SET title = 'new' WHERE id = 1")
    second = place.archive(TUESDAY)
    assert len(place.rows("documents", MONDAY)) == 20, "a deletion in the source does not reach the archive"
    assert len(place.rows("documents", TUESDAY)) == 15
    assert [night["title"] for night in place.rows("documents") if night["id"] == 1] == ["document 1", "new"]
    assert len(place.rows("documents", snapshot_id=monday)) == 20, "as of last night, by time travel"
    assert len(place.lake.table("archive.documents").snapshots()) == 2
    line = place.line(second, "documents")
    assert (line["rows"], line["difference"]) == (15, -5) and line["bytes"] > 0
    assert line["snapshot_id"] == place.lake.table("archive.documents").snapshot_id
    assert line["metadata_version"] == place.lake.table("archive.documents").metadata_version
    assert place.line(first, "documents")["difference"] is None
    assert (second["failed"], second["rows"], second["night"]) == (0, 17, "2026-11-17")
    spec = place.lake.table("archive.documents").spec
    assert (spec.kind, spec.keep_snapshots, spec.retention_years) == ("bulk", "all", 10)
    assert [str(part) for part in spec.partition] == ["dt"]
    (entry,) = lineage(load_records(place.lake.registry, place.lake.table("archive.documents").uuid))
    assert (entry["source"], entry["job"], entry["loads"]) == ("postgres:shop/documents", "archive postgres", 2)


def test_a_night_that_is_run_again_is_replaced(place: Place) -> None:
    place.archive(MONDAY)
    place.archive(TUESDAY)
    place.sql("INSERT INTO documents VALUES (99, 'late', 1)")
    place.archive(TUESDAY)
    assert len(place.rows("documents", MONDAY)) == 20 and len(place.rows("documents", TUESDAY)) == 21
    assert len(place.rows("persons", TUESDAY)) == 2


def test_what_changes_in_the_source_evolves_the_archive(place: Place) -> None:
    place.sql("CREATE TABLE t (id int, gone text, small int, price numeric(6,2), word text)")
    place.sql("INSERT INTO t VALUES (1, 'x', 2, 3.50, 'w')")
    place.archive(MONDAY, tables=["t"])
    place.sql(
        "ALTER TABLE t DROP COLUMN gone, ADD COLUMN added date, ALTER small TYPE bigint, "
        "ALTER price TYPE numeric(12,2), ALTER word TYPE int USING 7",
        "UPDATE t SET added = '2026-11-17', small = 5000000000",
    )
    place.archive(TUESDAY, tables=["t"])
    monday, tuesday = place.rows("t", MONDAY)[0], place.rows("t", TUESDAY)[0]
    assert (monday["gone"], monday["small"], monday["word"], monday["added"]) == ("x", 2, "w", None)
    assert (tuesday["gone"], tuesday["small"], tuesday["added"]) == (None, 5_000_000_000, TUESDAY)
    assert (tuesday["word"], tuesday["word_int"], monday["word_int"]) == (None, 7, None)
    assert str(tuesday["price"]) == "3.50"
    place.sql("ALTER TABLE t ALTER word TYPE text USING 'back'")
    place.archive(date(2026, 11, 18), tables=["t"])
    back = place.rows("t", date(2026, 11, 18))[0]
    assert (back["word"], back["word_int"]) == ("back", None), "a type that comes back finds its column"


def test_all_tables_are_of_one_moment(place: Place) -> None:
    """While they are read, another session moves a row from one table to the other."""
    place.sql("CREATE TABLE a (id int)", "CREATE TABLE b (id int)", "INSERT INTO a VALUES (1)")

    class Moving(InProcessTasks):
        def run(self, pieces: Any, work: Any, **words: Any) -> Any:
            half = len(pieces) // 2
            done = super().run(pieces[:half], work, **words)
            place.sql("BEGIN", "DELETE FROM a", "INSERT INTO b VALUES (1)", "COMMIT")
            return done + super().run(pieces[half:], work, **words)

    place.loads(Moving()).run(place.ask(MONDAY, tables=["a", "b"]), lambda progress: None)
    assert (len(place.rows("a")), len(place.rows("b"))) == (1, 0)


def test_a_table_that_fails_is_told_and_the_others_go_on(place: Place) -> None:
    place.sql(
        "CREATE TABLE wrong (id int, at date)",
        "INSERT INTO wrong VALUES (1, 'infinity')",
        "CREATE TABLE closed (id int)",
        'CREATE TABLE dt (dt text, "Odd Name" int)',
        "INSERT INTO dt VALUES ('own', 1)",
    )
    report = place.archive(MONDAY, tables=["*", "absent"])
    failed = {line["table"]: line["error"] for line in report["tables"] if line["error"]}
    assert set(failed) == {"wrong", "absent"} and report["failed"] == 2
    assert "infin" in failed["wrong"]
    assert len(place.rows("documents")) == 20
    assert place.rows("dt")[0]["dt_"] == "own" and place.rows("dt")[0]["odd_name"] == 1
    text, html = (Path(report["report"][kind]).read_text() for kind in ("text", "html"))
    assert "2 FAILED" in text and "FAILED wrong:" in text and "documents" in text
    assert "<strong>wrong</strong>" in html and "not-a-secret" not in text + html


def test_a_source_that_cannot_be_reached_says_so_without_its_password(place: Place) -> None:
    (place.folder / "dsn").unlink(missing_ok=True)
    (place.folder / "dsn").touch(0o600)
    (place.folder / "dsn").write_text("postgresql://frazil:hush-hush@127.0.0.1:1/postgres")

    with pytest.raises(Unavailable) as failed:
        place.archive(MONDAY)
    assert "hush-hush" not in f"{failed.value} {failed.value.hint} {failed.value.details}"


def test_a_mail_that_fails_is_told_and_the_night_is_archived(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = certificate(place.folder)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    words = {"host": "127.0.0.1", "user": "frazil", "sender": "f@example.org", "recipients": ["dba@example.org"]}
    told: list[dict[str, Any]] = []
    with running_mailbox(Guard(trusted, "frazil", "right-and-secret")) as mailbox:

        def archived(password: str) -> dict[str, Any]:
            mail = MailSettings.model_validate({**words, "port": mailbox.port, "password": password})
            told.append(place.loads(mail=mail).run(place.ask(MONDAY), lambda progress: None))
            return told[-1]

        right, wrong = archived("right-and-secret"), archived("wrong-and-secret")
        monkeypatch.delenv("SSL_CERT_FILE")
        strange = archived("right-and-secret")
    assert right["mailed"] and "mail_error" not in right
    assert not wrong["mailed"] and "does not accept the user or the password" in wrong["mail_error"]
    assert not strange["mailed"] and "certificate cannot be trusted" in strange["mail_error"]
    assert [message["Subject"] for message in mailbox.messages] == ["Archive of shop, 2026-11-16: 2 tables"]
    assert wrong["failed"] == 0 and len(place.rows("documents", MONDAY)) == 20
    assert "documents" in Path(wrong["report"]["text"]).read_text()
    assert "does not accept" in caplog.text
    assert "and-secret" not in f"{caplog.text} {told}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "after_postgres_snapshot",
        "after_postgres_declare",
        "after_postgres_read",
        "before_load_publish",
        "after_load_publish",
        "amid_archive_publish",
    ],
)
def test_an_archive_that_is_killed_is_made_by_the_next_process(place: Place, point: str) -> None:
    place.archive(MONDAY)
    place.sql("INSERT INTO documents VALUES (77, 'more', 1)")
    job = place.ask(TUESDAY)
    assert place.settings.dsn_file
    words = address(place.lake), place.settings.dsn_file, place.schema, place.folder / "sent"
    killed_at(point, do_postgres_jobs, *words)
    # Between the two tries the database goes on: the tables must agree with each other all the same.
    place.sql("INSERT INTO persons VALUES (3, 'Barbara')", "DELETE FROM documents WHERE id = 1")
    for _ in range(2):
        finished(do_postgres_jobs, *words)
    assert job_status(place.lake.registry, job.id)["failed"] == 0
    assert (len(place.rows("documents", MONDAY)), len(place.rows("persons", MONDAY))) == (20, 2)
    assert (len(place.rows("documents", TUESDAY)), len(place.rows("persons", TUESDAY))) == (20, 3)


def test_a_night_is_asked_for_once_when_its_time_has_come(place: Place) -> None:
    settings = place.settings.model_copy(update={"archive_at": "02:30"})
    registry = place.lake.registry
    for _ in range(2):  # a restart forgets nothing
        nightly = ArchiveTrigger("shop", settings, registry)
        for hour, minute in ((0, 0), (2, 29), (2, 30), (2, 31), (23, 59)):
            nightly.poll(datetime(2026, 11, 16, hour, minute, tzinfo=UTC))

    assert [job.params["run_date"] for job in open_jobs(registry)] == ["2026-11-16"]
    nightly.poll(datetime(2026, 11, 17, 2, 30, tzinfo=UTC))
    assert [job.params["run_date"] for job in open_jobs(registry)] == ["2026-11-16", "2026-11-17"]
