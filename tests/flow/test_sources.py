"""Files and a Postgres through the whole product: loaded, checked, killed amid a load, archived, reported, refreshed.

All of it on one `frazil up`, one Postgres and one mail server; each test has tables of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.servers import PostgresServer, running_postgres
from tests.flow.checker import in_sqlite, scanned
from tests.flow.mailbox import Guard, Mailbox, certificate, running_mailbox
from tests.flow.product import Product, command_of, eventually, new_folder, running

pytestmark = [pytest.mark.slow, pytest.mark.spark]
MANY = 1_500_000
SETTINGS = """
[sources.shop]
dsn_env = "SHOP_DSN"
exclude = ["hidden_*"]

[sources.closed]
dsn_file = "closed.dsn"

[sources.nightly]
dsn_env = "SHOP_DSN"
schema = "nightly"
archive_at = "00:00"

[watch.inbox]
folder = "inbox"
table = "dropped"
look_seconds = 0.2

[watch.slowly]
folder = "slowly"
table = "grown"
look_seconds = {slow_look}

[mail]
host = "127.0.0.1"
port = {port}
security = "starttls"
user = "frazil"
sender = "frazil@example.org"
recipients = ["dba@example.org"]
"""
SLOW_LOOK_SECONDS = 4.0
MAIL_PASSWORD = "mailed-and-secret"
_DROPPED = "SELECT who, n FROM dropped ORDER BY n"


@dataclass(frozen=True)
class Sources:
    folder: Path
    product: Product
    postgres: PostgresServer
    mailbox: Mailbox

    def file(self, name: str, *lines: str) -> str:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    def ingest(self, *words: str) -> dict[str, Any]:
        done = self.product.cli("ingest", *words, "--json")
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.product.words()}"
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def ask(self, sql: str, **words: Any) -> list[list[Any]]:
        answer = self.product.ask("POST", "/v1/query", {"sql": sql, **words})
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json()["rows"]
        return rows

    def psql(self, *statements: str) -> None:
        command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.postgres.port)]
        access = {"PGUSER": "frazil", "PGPASSWORD": self.postgres.credentials["password"], "PGDATABASE": "postgres"}
        done = subprocess.run(
            [*command, "-f", "-"],
            input="".join(f"{statement};\n" for statement in statements),
            env={"PATH": os.environ["PATH"], **access},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def job(self, job_id: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.product.ask("GET", f"/v1/jobs/{job_id}").json()
        except httpx.HTTPError:
            return {}
        return found

    def finished(self, job_id: str) -> dict[str, Any]:
        def over() -> dict[str, Any] | None:
            told = self.job(job_id)
            return told if told.get("state") in ("done", "failed") else None

        told = eventually(over, what=f"the end of job {job_id}", every=0.2)
        assert told is not None and told["state"] == "done", f"{told}\n{self.product.words()}"
        return told


def dsn(server: PostgresServer, *, user: str = "frazil", password: str | None = None) -> str:
    secret = password or server.credentials["password"]
    return f"postgresql://{user}:{secret}@127.0.0.1:{server.port}/postgres"


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    with (
        running_postgres(options={"fsync": "off"}) as server,
        new_folder("sources") as folder,
        running_mailbox(Guard(certificate(folder), "frazil", MAIL_PASSWORD)) as mailbox,
    ):
        assert mailbox.guard is not None
        (folder / "frazil.toml").write_text(SETTINGS.format(port=mailbox.port, slow_look=SLOW_LOOK_SECONDS))
        closed = folder / "closed.dsn"
        closed.touch(0o600)
        closed.write_text(dsn(server, user="nobody", password="wrong-and-secret") + "\n")
        environment = {
            "SHOP_DSN": dsn(server),
            "FRAZIL_MAIL__PASSWORD": MAIL_PASSWORD,
            "SSL_CERT_FILE": str(mailbox.guard.certificate),
        }
        product = Product(folder / "data", environment=environment)
        found = Sources(folder, product, server, mailbox)
        found.psql("CREATE SCHEMA nightly", "CREATE TABLE nightly.tickets AS SELECT n FROM generate_series(1, 7) n")
        with running(product):
            product.up()
            yield found


def test_files_by_path_by_upload_and_dropped_into_a_folder(sources: Sources) -> None:
    first = sources.file("people-1.csv", "Name,Born,Zip", "Aino,1990-05-01,00120", "Bjarne,1985-01-31,00130")
    told = sources.ingest("csv", first, "--table", "people")
    assert (told["rows_in"], told["rows_out"], told["quarantined"]) == (2, 2, 0)
    assert sources.ask("SELECT name, born, zip FROM people ORDER BY name")[0] == ["Aino", "1990-05-01", "00120"]
    second = sources.file("people-2.csv", "Name;Born;Zip", "Chiara;2001-12-24;00140")
    assert sources.ingest("csv", second, "--table", "people", "--upload")["rows_out"] == 1
    again = sources.ingest("csv", first, second, "--table", "people")
    assert [file["state"] for file in again["files"]] == ["already loaded"] * 2
    assert sources.ask("SELECT count(*), count(DISTINCT _id), max(_seq) < 0 FROM people") == [[3, 3, True]]

    sources.file("inbox/monday.csv", "who,n", "x,1")
    eventually(lambda: "dropped" in sources.product.status().get("tables", {}), what="the watched table", every=0.2)
    eventually(lambda: sources.ask(_DROPPED) == [["x", 1]], what="the first dropped file", every=0.2)
    sources.file("inbox/tuesday.csv.part", "who,n", "never,0")
    sources.file("inbox/tuesday.csv", "who,n", "y,2")
    eventually(lambda: sources.ask(_DROPPED) == [["x", 1], ["y", 2]], what="the second one", every=0.2)
    (lineage,) = sources.product.ask("GET", "/v1/tables/dropped").json()["lineage"]
    assert (lineage["source"], lineage["job"], lineage["loads"]) == ("csv:watch/inbox", "ingest csv", 2)


def test_a_file_that_is_dropped_slowly_is_loaded_when_it_is_whole_and_once(sources: Sources) -> None:
    path = sources.folder / "slowly" / "long.csv"
    path.parent.mkdir()
    sources.product.until_part("pipeline", "ok")
    lines = [f"word {n},{n}\n" for n in range(20)]

    def loads() -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = sources.product.ask("GET", "/v1/jobs").json()["jobs"]
        return [job for job in reversed(asked) if job["asked_by"] == "watch slowly"]

    with path.open("w") as file:
        file.write("words,n\n")
        for line in lines:
            began = time.monotonic()
            file.write(line)
            file.flush()
            time.sleep(SLOW_LOOK_SECONDS / 10)
            assert time.monotonic() - began < SLOW_LOOK_SECONDS, "this machine stood still: the test says nothing"
    assert loads() == [], "it was looked at several times while it grew"
    eventually(lambda: [job["state"] for job in loads()] == ["done"], what="the load of the whole", every=0.2)
    assert sources.ask("SELECT count(*), count(DISTINCT n), max(n) FROM grown") == [[20, 20, 19]]
    # The same again: by another name, and written anew.
    (path.parent / "copy.csv").write_bytes(path.read_bytes())
    path.write_bytes(path.read_bytes())

    def again() -> list[str]:
        return [file["state"] for job in loads()[1:] for file in job.get("files", ())]

    eventually(lambda: len(again()) >= 2, what="a look at both", every=0.2)
    assert again() == ["already loaded"] * 2
    assert sources.ask("SELECT count(*) FROM grown") == [[20]]


def test_a_folder_that_is_followed_from_the_terminal(sources: Sources) -> None:
    folder = sources.folder / "followed"
    folder.mkdir()
    sources.file("followed/a.csv", "who,n", "x,1")
    data = ("--data", str(sources.product.data))
    following = sources.product.run("ingest", "csv", str(folder), "--table", "followed", "--watch", *data)
    rows = "SELECT who, n FROM followed ORDER BY n"

    def said(word: str, times: int = 1) -> None:
        eventually(
            lambda: sources.product.said(following).count(word) >= times, what=f"{word!r} on the terminal", every=0.1
        )

    said("followed: 1 row from 1 file in")
    assert sources.ask(rows) == [["x", 1]], "what is there already is loaded too"
    sources.file("followed/b.csv", "who,n", "y,2")
    said("followed: 1 row from 1 file in", 2)
    assert sources.ask(rows) == [["x", 1], ["y", 2]]
    sources.file("followed/c.csv", "who,n", "y,2")
    said("nothing to do, 1 file already loaded")
    sources.file("followed/d.csv", "who,n", "y,many", "z")
    said("Error:")
    sources.file("followed/e.csv", "who,n", "z,3")
    eventually(lambda: sources.ask(rows)[-1] == ["z", 3], what="the one after a load that failed", every=0.2)
    assert len(sources.ask(rows)) == 3
    following.send_signal(signal.SIGINT)
    assert following.wait(30) == 0


def test_bad_records_are_kept_apart(sources: Sources) -> None:
    checks = [
        *("--column", "sku=string", "--check", 'sku={"unique": true, "not_null": true}'),
        *("--column", "count=long", "--check", 'count={"range": {"min": 0}}'),
    ]
    first = sources.file("stock-1.csv", "sku,count", "a,1", "b,-1", "a,2", "c,many", "d,4,5", ",6", "e,7")
    told = sources.ingest("csv", first, "--table", "stock", "--max-bad", "5", *checks)
    assert (told["rows_in"], told["rows_out"], told["quarantined"]) == (7, 2, 5)
    again = sources.file("stock-2.csv", "sku,count", "e,1", "f,2")
    assert sources.ingest("csv", again, "--table", "stock", "--max-bad", "50%")["quarantined"] == 1
    assert sources.ask("SELECT sku, count FROM stock ORDER BY sku") == [["a", 1], ["e", 7], ["f", 2]]
    bad = sources.ask("SELECT file, line, column_name, raw FROM stock__quarantine ORDER BY file, line")
    assert bad == [
        ["stock-1.csv", 3, "count", "b,-1"],
        ["stock-1.csv", 4, "sku", "a,2"],
        ["stock-1.csv", 5, "count", "c,many"],
        ["stock-1.csv", 6, None, "d,4,5"],
        ["stock-1.csv", 7, "sku", ",6"],
        ["stock-2.csv", 2, "sku", "e,1"],
    ]
    worse = sources.file("stock-3.csv", "sku,count", "g,1", "h,x")
    refused = sources.product.cli("ingest", "csv", worse, "--table", "stock", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "too_many_bad_rows"
    assert "line 3 field count: 'x' is not of type long" in refused.stderr
    assert sources.ask("SELECT count(*) FROM stock") == [[3]]


def test_a_pipeline_that_is_killed_amid_a_load_finishes_it(sources: Sources) -> None:
    path = sources.folder / "many.csv"
    with path.open("w") as file:
        file.write("n,words,amount,day\n")
        file.writelines(f"{n},some words {n % 1000},{n / 4},2026-01-{1 + n % 28:02d}\n" for n in range(MANY))
    sources.product.until_part("pipeline", "ok")
    asked = sources.product.ask("POST", "/v1/loads/csv", {"table": "many", "files": [str(path)]})
    job_id = asked.json()["id"]
    warehouse = sources.product.data / "warehouse"
    eventually(lambda: list(warehouse.rglob("*many*/**/*.parquet")), what="files of the load", every=0.02)
    sources.product.kill("pipeline")
    assert sources.job(job_id)["state"] == "running"
    told = sources.finished(job_id)
    assert (told["rows_out"], told["quarantined"]) == (MANY, 0)
    locate = in_sqlite(sources.product.data / "catalog.db")
    counted = "count(*), count(DISTINCT n), count(DISTINCT _id), sum(n), CAST(sum(amount) * 4 AS BIGINT)"
    total = MANY * (MANY - 1) // 2
    assert scanned(locate, "many", counted) == [(MANY, MANY, MANY, total, total)]
    (load,) = sources.product.ask("GET", "/v1/tables/many/loads").json()["loads"]
    assert load["rows"] == MANY


def test_a_night_its_report_and_what_became_of_the_mails(sources: Sources) -> None:
    sources.psql(
        "CREATE TABLE sent_emails (sg_message_id text PRIMARY KEY, recipient text)",
        "CREATE TABLE email_events (id bigserial PRIMARY KEY, sg_message_id text, event text, at timestamptz)",
        "CREATE TABLE hidden_thing (a int)",
        "CREATE TABLE odd (amount numeric(10,2))",
        "INSERT INTO sent_emails SELECT 'm' || n, 'p' || n || '@example.org' FROM generate_series(1, 5) n",
        "INSERT INTO email_events (sg_message_id, event, at) VALUES ('m1', 'delivered', '2026-11-09 08:00Z'), "
        "('m1', 'open', '2026-11-09 09:00Z'), ('m2', 'bounce', '2026-11-09 08:00Z')",
    )
    first = sources.ingest("postgres", "archive", "shop", "--date", "2026-11-09")
    assert first["mailed"] and not first["failed"]
    sources.psql("DELETE FROM sent_emails WHERE sg_message_id = 'm5'", "INSERT INTO odd VALUES ('NaN')")
    done = sources.product.cli("ingest", "postgres", "archive", "shop", "--date", "2026-11-10", "--json")
    assert done.returncode == 1, "one table failed, and the others went on"
    second = json.loads(done.stdout.splitlines()[0])
    lines = {line["table"]: line for line in second["tables"]}
    assert set(lines) == {"sent_emails", "email_events", "odd"} and "NaN" in lines["odd"]["error"]
    assert (lines["sent_emails"]["rows"], lines["sent_emails"]["difference"]) == (4, -1)
    assert lines["email_events"]["snapshot_id"] and lines["email_events"]["metadata_version"]

    joined = (
        'SELECT s.recipient, max_by(e.event, e."at"), count(e.id) FROM archive.sent_emails s '
        "LEFT JOIN archive.email_events e ON e.sg_message_id = s.sg_message_id AND e.dt = s.dt "
        "WHERE s.dt = '2026-11-10' GROUP BY 1 ORDER BY 1 LIMIT 3"
    )
    expected = [["p1@example.org", "open", 2], ["p2@example.org", "bounce", 1], ["p3@example.org", None, 0]]
    assert sources.ask(joined) == expected
    by_night = "SELECT dt, count(*) FROM archive.sent_emails GROUP BY dt ORDER BY dt"
    assert sources.ask(by_night) == [["2026-11-09", 5], ["2026-11-10", 4]]
    before = {line["table"]: line["snapshot_id"] for line in first["tables"]}["sent_emails"]
    assert sources.ask(f"SELECT count(*) FROM archive.sent_emails FOR VERSION AS OF {before}") == [[5]]
    locate = in_sqlite(sources.product.data / "catalog.db", namespace="archive")
    assert scanned(locate, "sent_emails", "count(*), count(DISTINCT dt)") == [(9, 2)]

    for kind in ("text", "html"):
        report = Path(second["report"][kind]).read_text()
        assert "sent_emails" in report and "1 FAILED" in report
    sent = [mail for mail in sources.mailbox.messages if "shop" in mail["Subject"]]
    assert [mail["Subject"] for mail in sent] == [
        "Archive of shop, 2026-11-09: 3 tables",
        "Archive of shop, 2026-11-10: 2 tables, 1 FAILED",
    ]
    assert sent[-1]["To"] == "dba@example.org" and sent[-1].get_content_type() == "multipart/alternative"


def test_a_night_comes_by_itself_once(sources: Sources) -> None:
    """Its time has come when frazil starts; not again on that day, also not by a pipeline that was killed since."""

    def asked() -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = sources.product.ask("GET", "/v1/jobs").json()["jobs"]
        return [job for job in jobs if job.get("asked_by") == "nightly"]

    today = datetime.now(UTC).date().isoformat()
    eventually(lambda: asked() and asked()[0]["state"] == "done", what="the night", every=0.5)
    (night,) = [job for job in asked() if job["night"] == today]
    assert (night["source"], night["failed"], night["rows"], night["mailed"]) == ("nightly", 0, 7, True)
    assert sources.ask("SELECT CAST(min(dt) AS VARCHAR), count(*), max(n) FROM archive.tickets") == [[today, 7, 7]]
    subjects = [mail["Subject"] for mail in sources.mailbox.messages]
    assert subjects.count(f"Archive of nightly, {today}: 1 table") == 1


def test_a_table_kept_in_step(sources: Sources) -> None:
    sources.psql(
        "CREATE TABLE documents (id bigint PRIMARY KEY, title text, seen timestamptz)",
        "INSERT INTO documents SELECT n, 'title ' || n, '2026-11-01Z' FROM generate_series(1, 100) n",
    )
    full = ("postgres", "full", "shop", "documents", "--into", "docs", "--kind", "entity")
    assert sources.ingest(*full)["upserts"] == 100
    sources.psql(
        "DELETE FROM documents WHERE id <= 10",
        "UPDATE documents SET title = NULL WHERE id = 50",
        "INSERT INTO documents VALUES (101, 'new', NULL)",
    )
    told = sources.ingest(*full)
    assert (told["upserts"], told["deletes"], told["unchanged"]) == (2, 10, 89)
    assert sources.ask("SELECT count(*), min(id), max(id), count(title) FROM docs") == [[91, 11, 101, 90]]
    assert sources.ask("SELECT _op, count(*) FROM docs__history GROUP BY 1 ORDER BY 1") == [
        ["delete", 10],
        ["upsert", 102],
    ]
    assert sources.ask("SELECT title, _op FROM docs__history WHERE id = 50 ORDER BY _seq") == [
        ["title 50", "upsert"],
        [None, "upsert"],
    ]
    nothing = sources.ingest(*full)
    assert (nothing["upserts"], nothing["deletes"], nothing["unchanged"]) == (0, 0, 91)

    into_log = ("postgres", "incremental", "shop", "documents", "--cursor", "id", "--into", "docs_log")
    into_entity = ("postgres", "incremental", "shop", "documents", "--cursor", "seen", "--into", "docs_seen")
    assert sources.ingest(*into_log)["rows"] == 91
    assert sources.ingest(*into_entity, "--kind", "entity")["upserts"] == 90
    sources.psql(
        "INSERT INTO documents VALUES (102, 'newer', '2026-11-02Z')",
        "UPDATE documents SET title = 'again', seen = '2026-11-03Z' WHERE id = 20",
    )
    again = sources.ingest(*into_log, "--overlap", "5")
    assert (again["rows"], again["repeated"]) == (1, 5)
    assert sources.ingest(*into_entity)["upserts"] == 2
    assert sources.ask("SELECT count(*), count(DISTINCT id), max(id) FROM docs_log") == [[92, 92, 102]]
    assert sources.ask("SELECT count(*) FROM docs_seen") == [[91]]
    assert sources.ask("SELECT title FROM docs_seen WHERE id = 20") == [["again"]]


def test_no_password_is_told_and_no_upload_is_left(sources: Sources) -> None:
    closed = sources.product.cli("ingest", "postgres", "archive", "closed", "--json")
    assert closed.returncode == 1
    assert json.loads(closed.stdout)["error"]["code"] == "postgres_denied"
    sources.file("one.csv", "a", "1")
    sources.ingest("csv", str(sources.folder / "one.csv"), "--table", "one", "--upload")
    assert list((sources.product.data / "uploads").iterdir()) == []
    secrets = [sources.postgres.credentials["password"].encode(), b"wrong-and-secret", MAIL_PASSWORD.encode()]
    assert sources.mailbox.signed_in
    kept = [path for path in sources.product.data.rglob("*") if path.is_file()]
    told = [*kept, *sources.folder.glob("*.out")]
    assert {path.parent.name for path in told} >= {"logs", "journal", "reports"}
    shown = [path for path in told for secret in secrets if secret in path.read_bytes()]
    assert shown == []
    commands = [command_of(pid) for pid in sources.product.everything()]
    assert any("java" in command for command in commands)
    assert not [command for command in commands for secret in secrets if secret.decode() in command]
    for path in ("/v1/jobs", "/v1/journal?limit=1000", "/v1/status"):
        assert not any(secret.decode() in sources.product.ask("GET", path).text for secret in secrets)
