"""The audit log: what is written is there, for DuckDB too, and nobody can fill the disk by being refused."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from frazil.access import AuditEntry, AuditLog
from frazil.access.audit import sql_hash
from frazil.access.denied_log import MAX_ADDRESSES, DeniedLog
from frazil.errors import Unavailable

_DUCKDB_TYPES = {
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
    "string": "VARCHAR",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "list<element: string>": "VARCHAR[]",
    "list<item: string>": "VARCHAR[]",
}


def lines(log: AuditLog) -> list[dict[str, Any]]:
    text = "".join(path.read_text() for path in sorted(log.folder.iterdir()))
    return [json.loads(line) for line in text.splitlines() if line]


def as_a_table(log: AuditLog, query: str) -> list[tuple[Any, ...]]:
    columns = {field.name: _DUCKDB_TYPES[str(field.type)] for field in log.columns}
    source = (
        f"(SELECT * FROM read_json('{log.glob}', format='newline_delimited', ignore_errors=true, columns={columns}) "
        "WHERE logged_at IS NOT NULL)"
    )
    with duckdb.connect() as connection:
        return connection.execute(query.replace("audit", source)).fetchall()


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit")


def test_an_entry_as_it_stands(log: AuditLog) -> None:
    log.append(
        AuditEntry(
            action="query", token_id="a", token_name="reports", client="10.0.0.1", sql_hash=sql_hash("SELECT 1"),
            tables=("main.notes",), rows=3, ms=1.25, snapshot="fzt1.x",
        )
    )  # fmt: skip
    (entry,) = lines(log)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry.pop("logged_at"))
    assert entry == {
        "action": "query", "outcome": "ok", "token_id": "a", "token_name": "reports", "client": "10.0.0.1",
        "sql_hash": "e004ebd5b5532a4b85984a62f8ad48a81aa3460c1ca07701f386135d72cdecf5",
        "tables": ["main.notes"], "rows": 3, "ms": 1.25, "snapshot": "fzt1.x",
    }  # fmt: skip


def test_it_is_a_table(log: AuditLog) -> None:
    assert as_a_table(log, "SELECT * FROM audit") == [], "also before the first entry"
    log.append(AuditEntry(action="query", token_id="a", tables=("main.x", "main.y"), rows=2**40, ms=0.5))
    log.append(AuditEntry(action="token.create", token_id="b", subject="c"), durable=True)
    found = as_a_table(log, "SELECT token_id, tables, rows, ms, subject, logged_at > now() - INTERVAL 1 DAY FROM audit")
    assert found == [("a", ["main.x", "main.y"], 2**40, 0.5, None, True), ("b", [], None, None, "c", True)]
    assert set(AuditEntry.__dataclass_fields__) | {"logged_at"} == set(log.columns.names)


def test_it_is_for_its_owner_only(log: AuditLog) -> None:
    log.append(AuditEntry(action="query"))
    assert stat.S_IMODE(log.folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in log.folder.iterdir()] == [0o600]


def test_files_by_size_and_nothing_lost(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit", max_file_bytes=4096)
    for number in range(100):
        log.append(AuditEntry(action="query", rows=number))
    again = AuditLog(tmp_path / "audit", max_file_bytes=4096)
    for number in range(100, 120):
        again.append(AuditEntry(action="query", rows=number))
    assert [entry["rows"] for entry in lines(log)] == list(range(120))
    files = sorted(log.folder.iterdir())
    assert len(files) > 2
    assert all(path.stat().st_size <= 4096 for path in files)
    files[0].unlink()  # the operator's retention
    log.append(AuditEntry(action="query", rows=120))
    assert lines(log)[-1]["rows"] == 120


def test_a_torn_line_swallows_nothing(log: AuditLog) -> None:
    log.append(AuditEntry(action="query", rows=1))
    (path,) = log.folder.iterdir()
    with path.open("ab") as file:
        file.write(b'\n{"logged_at":"2026-11-03T09:3')
    log.append(AuditEntry(action="query", rows=2))
    assert as_a_table(log, "SELECT rows FROM audit ORDER BY rows") == [(1,), (2,)]


def test_several_processes_share_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from frazil.access import AuditEntry, AuditLog\n"
        "log = AuditLog(Path(sys.argv[1]), max_file_bytes=20_000)\n"
        "for number in range(300): log.append(AuditEntry(action=sys.argv[2], rows=number, tables=('main.t',) * 20))\n"
    )
    folder = tmp_path / "audit"
    started = [subprocess.Popen([sys.executable, "-c", program, str(folder), name]) for name in "abc"]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    log = AuditLog(folder)
    for name in "abc":
        assert sorted(entry["rows"] for entry in lines(log) if entry["action"] == name) == list(range(300))
    assert as_a_table(log, "SELECT count(*) FROM audit") == [(900,)]


def test_a_file_that_was_removed_is_not_written_to(log: AuditLog) -> None:
    log.append(AuditEntry(action="query", rows=1))
    (path,) = log.folder.iterdir()
    path.unlink()
    log.append(AuditEntry(action="query", rows=2))
    assert [entry["rows"] for entry in lines(log)] == [2]
    log.close()
    log.append(AuditEntry(action="query", rows=3))
    assert [entry["rows"] for entry in lines(log)] == [2, 3]


def test_a_folder_that_is_gone_is_an_error_for_one_who_wrote_before(log: AuditLog) -> None:
    log.append(AuditEntry(action="query", rows=1))
    for path in log.folder.iterdir():
        path.unlink()
    log.folder.rmdir()
    with pytest.raises(Unavailable):
        log.append(AuditEntry(action="query"))


def test_long_words_are_cut(log: AuditLog) -> None:
    log.append(AuditEntry(action="query", token_name="n" * 10_000, tables=("t" * 1000,) * 1000))
    (entry,) = lines(log)
    assert len(json.dumps(entry)) < 25_000
    assert entry["token_name"] == "n" * 200


def test_what_cannot_be_logged_is_an_error(log: AuditLog) -> None:
    for path in log.folder.iterdir():
        path.unlink()
    log.folder.rmdir()
    log.folder.write_text("no folder")
    with pytest.raises(Unavailable) as refused:
        log.append(AuditEntry(action="query"))
    assert refused.value.code == "audit_unavailable"
    assert str(log.folder) not in refused.value.message


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_refusals_are_logged_up_to_a_bound_and_counted_above(log: AuditLog) -> None:
    clock = Clock()
    refusals = DeniedLog(log, per_second=3, clock=clock)
    for _ in range(50):
        refusals.note(AuditEntry(action="denied", outcome="unauthorized", client="10.0.0.1"))
    refusals.note(AuditEntry(action="denied", outcome="forbidden", client="10.0.0.2"))
    refusals.flush()
    assert len(lines(log)) == 4, "the second is not over"
    clock.now += 1
    refusals.flush()
    refusals.flush()
    counted = [entry for entry in lines(log) if "left_out" in entry]
    assert [(entry["client"], entry["left_out"], entry["outcome"]) for entry in counted] == [
        ("10.0.0.1", 47, "left_out")
    ]
    refusals.note(AuditEntry(action="denied", outcome="unauthorized", client="10.0.0.1"))
    assert len(lines(log)) == 6, "a new second, a new start"


def test_refusals_without_a_flush_and_at_the_end(log: AuditLog) -> None:
    clock = Clock()
    refusals = DeniedLog(log, per_second=1, clock=clock)
    for _ in range(3):
        for _ in range(5):
            refusals.note(AuditEntry(action="denied", client="10.0.0.1"))
        clock.now += 1
    refusals.flush(closing=True)
    assert sum(entry.get("left_out", 1) for entry in lines(log)) == 15


def test_refusals_of_very_many_addresses(log: AuditLog) -> None:
    refusals = DeniedLog(log, per_second=2, clock=Clock())
    for number in range(5 * MAX_ADDRESSES):
        refusals.note(AuditEntry(action="denied", client=f"fd00::{number:x}"))
    refusals.flush(closing=True)
    assert len(lines(log)) <= MAX_ADDRESSES + 3
    assert sum(entry.get("left_out", 1) for entry in lines(log)) == 5 * MAX_ADDRESSES
