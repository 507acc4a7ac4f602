"""CSV loads from request to report, on a real lake; their tasks run in this process."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import Conflict, FrazilError, InvalidInput
from frazil.events.declaration import TableSpec, parse_table
from frazil.lake.bulk import data_files, lineage, load_records
from frazil.lake.catalog import Lake, LakeTable, create_entity, open_lake
from frazil.pipeline.sources.csv import CsvLoads
from frazil.registry import Job, job_status, submit_job
from frazil.storage import Warehouse
from tests.kills import address, finished, killed_at
from tests.pipeline.in_process import FolderSender, InProcessTasks, KeptSender
from tests.pipeline.sources.csv.csv_probe import do_csv_jobs

CRASH_POINTS = [
    "after_csv_scan",
    "after_csv_declare",
    "after_csv_tasks",
    "before_load_publish",
    "after_load_publish",
    "after_quarantine_publish",
    "after_load_complete",
]


@dataclass(frozen=True)
class Place:
    folder: Path
    lake: Lake
    sender: KeptSender

    @property
    def loads(self) -> CsvLoads:
        def make(spec: TableSpec, *, location: str | None = None) -> LakeTable:
            return self.lake.create(spec, stream="s", identity="i", location=location)

        return CsvLoads(self.lake, InProcessTasks(), make, self.sender)

    def file(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def ask(self, *files: str, table: str = "orders", **options: Any) -> Job:
        params = {"table": table, "files": list(files), **options}
        return submit_job(self.lake.registry, "csv", table, params, asked_by="someone")

    def load(self, *files: str, **options: Any) -> dict[str, Any]:
        return self.loads.run(self.ask(*files, **options), lambda progress: None)

    def table(self, name: str = "main.orders") -> LakeTable:
        return self.lake.table(name)

    def rows(self, *columns: str, name: str = "main.orders") -> list[dict[str, Any]]:
        found: pa.Table = self.table(name).iceberg.scan().to_arrow()
        wanted = found.select(list(columns)) if columns else found
        return list(wanted.to_pylist())

    def types(self) -> dict[str, str]:
        return {name: str(column.type) for name, column in self.table().spec.columns.items()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    yield Place(tmp_path, lake, KeptSender())
    lake.close()


def test_a_file_becomes_a_table(place: Place) -> None:
    told = place.load(
        place.file(
            "orders.csv", 'ID,Amount (EUR),Day,Zip,Note\n1,2.50,2026-11-01,01234,"a, b"\n2,10,2026-11-02,99999,\n'
        )
    )
    assert place.types() == {
        "id": "long",
        "amount_eur": "decimal(18,2)",
        "day": "date",
        "zip": "string",
        "note": "string",
    }
    assert place.rows("id", "amount_eur", "day", "zip", "note") == [
        {"id": 1, "amount_eur": Decimal("2.50"), "day": date(2026, 11, 1), "zip": "01234", "note": "a, b"},
        {"id": 2, "amount_eur": Decimal("10.00"), "day": date(2026, 11, 2), "zip": "99999", "note": None},
    ]
    assert (told["rows_in"], told["rows_out"], told["quarantined"]) == (2, 2, 0)
    assert told["snapshot_id"] == place.table().snapshot_id
    (row,) = {(row["_source"], row["_actor"], row["_op"], row["_seq"] < 0) for row in place.rows()}
    assert row == ("csv:orders.csv", "someone", "insert", True)
    assert len({row["_id"] for row in place.rows()}) == 2


def test_the_same_content_is_loaded_once(place: Place) -> None:
    first = place.file("a.csv", "n\n1\n2\n")
    place.load(first)
    again = place.load(first)
    assert again["load"] is None and [file["state"] for file in again["files"]] == ["already loaded"]
    copied = place.load(place.file("b.csv", "n\n1\n2\n"), place.file("c.csv", "n\n3\n"))
    assert [file["state"] for file in copied["files"]] == ["loaded", "already loaded"]
    twice = place.load(place.file("d.csv", "n\n4\n"), place.file("e.csv", "n\n4\n"))
    assert twice["rows_out"] == 1
    assert sorted(row["n"] for row in place.rows()) == [1, 2, 3, 4]


def test_a_changed_file_is_a_new_load(place: Place) -> None:
    place.load(place.file("a.csv", "n\n1\n"))
    place.load(place.file("a.csv", "n\n1\n2\n"))
    assert sorted(row["n"] for row in place.rows()) == [1, 1, 2]
    place.load(place.file("a.csv", "n\n7\n"), mode="replace")
    assert [row["n"] for row in place.rows()] == [7]
    place.load(place.file("a.csv", "n\n1\n"))
    assert sorted(row["n"] for row in place.rows()) == [1, 7], "what was replaced may come again"


def test_replacing_by_what_is_there_changes_nothing(place: Place) -> None:
    files = [place.file("a.csv", "n\n1\n"), place.file("b.csv", "n\n2\n")]
    place.load(*files, mode="replace")
    before = place.table().snapshot_id
    assert place.load(*files, mode="replace")["load"] is None
    assert place.table().snapshot_id == before
    place.load(files[0], place.file("c.csv", "n\n3\n"), mode="replace")
    assert sorted(row["n"] for row in place.rows()) == [1, 3], "a file that was there is not forgotten"


def test_bad_records_are_quarantined_with_their_text(place: Place) -> None:
    text = "id,amount\n1,5\n2,much\n3\n4,-1\n5,6\n"
    columns = {"id": "long", "amount": {"type": "long", "checks": {"range": {"min": 0}}}}
    told = place.load(place.file("o.csv", text), columns=columns, max_bad="80%")
    assert (told["rows_in"], told["rows_out"], told["quarantined"]) == (5, 2, 3)
    assert sorted(row["id"] for row in place.rows()) == [1, 5]
    bad = sorted(place.rows(name="main.orders__quarantine"), key=lambda row: row["line"])
    assert [(row["file"], row["line"], row["column_name"], row["raw"]) for row in bad] == [
        ("o.csv", 3, "amount", "2,much"),
        ("o.csv", 4, None, "3"),
        ("o.csv", 5, "amount", "4,-1"),
    ]
    assert all(row["reason"] and row["load"] == told["load"] for row in bad)


@pytest.mark.parametrize("max_bad", [0, "10%", 0.1])
def test_above_the_threshold_nothing_is_published(place: Place, max_bad: Any) -> None:
    place.load(place.file("good.csv", "id,amount\n1,5\n"))
    before = place.table().snapshot_id
    with pytest.raises(InvalidInput) as refused:
        place.load(place.file("o.csv", "id,amount\n1,5\n2,x\n3,7\n"), max_bad=max_bad)
    assert refused.value.code == "too_many_bad_rows" and refused.value.details["by_column"] == {"amount": 1}
    assert refused.value.details["examples"][0]["raw"] == "2,x"
    assert place.table().snapshot_id == before
    assert place.table("main.orders__quarantine").snapshot_id is None


def test_files_of_one_load_may_differ_in_columns_and_order(place: Place) -> None:
    place.load(place.file("a.csv", "a,b\n1,x\n"), place.file("b.csv", "b;c;a\ny;2.5;3\n"))
    assert sorted(place.rows("a", "b", "c"), key=lambda row: row["a"]) == [
        {"a": 1, "b": "x", "c": None},
        {"a": 3, "b": "y", "c": Decimal("2.5")},
    ]


def test_types_are_those_of_all_files(place: Place) -> None:
    place.load(place.file("a.csv", "v,w\n123,1\n"), place.file("b.csv", "v,w\nN/A,2.5\n,3\n"))
    assert place.types() == {"v": "string", "w": "decimal(18,1)"}


def declared(place: Place, policy: str, **columns: Any) -> None:
    spec = parse_table({"name": "orders", "columns": columns, "unknown_fields": policy})
    place.lake.create(spec, stream="s", identity="i")


def test_drift_is_refused_by_a_table_that_rejects(place: Place) -> None:
    declared(place, "reject", a="long")
    with pytest.raises(Conflict) as refused:
        place.load(place.file("a.csv", "a,b\n1,2\n"))
    assert refused.value.code == "schema_drift" and refused.value.details == {"columns": ["b"]}
    assert place.table().snapshot_id is None


def test_drift_makes_columns_and_widens_them_where_it_may(place: Place) -> None:
    declared(place, "evolve", a="int", d="decimal(5,2)", t="date")
    place.load(place.file("a.csv", "a,b,d,t\n99999999999,2.5,123456.78,tomorrow\n"), max_bad=1)
    assert place.types() == {"a": "long", "d": "decimal(18,2)", "t": "date", "b": "decimal(18,1)"}
    assert place.rows() == [], "a date does not become a text"
    assert [row["column_name"] for row in place.rows(name="main.orders__quarantine")] == ["t"]


def test_drift_is_kept_as_json(place: Place) -> None:
    declared(place, "keep", a="long")
    place.load(place.file("a.csv", 'a,b,c\n1,x,\n2,,\n3,"say ""hi""",0\n'))
    assert sorted(place.rows("a", "_extra"), key=lambda row: row["a"]) == [
        {"a": 1, "_extra": '{"b":"x"}'},
        {"a": 2, "_extra": None},
        {"a": 3, "_extra": '{"b":"say \\"hi\\"","c":"0"}'},
    ]


def test_columns_that_a_file_lacks_are_null_unless_they_are_required(place: Place) -> None:
    declared(place, "reject", a="long", b={"type": "string", "required": True})
    with pytest.raises(InvalidInput):
        place.load(place.file("a.csv", "a\n1\n"))
    place.load(place.file("a.csv", "a,b\n1,x\n"))
    assert place.rows("a", "b") == [{"a": 1, "b": "x"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv.gz", gzip.compress("n,ort\n1,Köln\n".encode(), mtime=0)),
        ("a.csv.bz2", bz2.compress("n,ort\n1,Köln\n".encode())),
        ("a.zst", pa.Codec("zstd").compress("n,ort\n1,Köln\n".encode()).to_pybytes()),
        ("bom.csv", b"\xef\xbb\xbf" + "n,ort\n1,Köln\n".encode()),
        ("utf16.csv", "n,ort\n1,Köln\n".encode("utf-16")),
        ("utf16be.csv", "n,ort\n1,Köln\n".encode("utf-16-be")),
        ("latin.csv", "n,ort\n1,Köln\n".encode("latin-1")),
        ("mac.csv", "n;ort\r1;Köln\r".encode()),
        ("tabs.tsv", "n\tort\r\n1\tKöln".encode()),
    ],
)
def test_whatever_a_file_is_packed_in_and_written_as(place: Place, name: str, content: bytes) -> None:
    place.load(place.file(name, content))
    assert place.rows("n", "ort") == [{"n": 1, "ort": "Köln"}]


def test_many_ranges_make_few_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import frazil.pipeline.sources.csv.dialect as dialect

    lines = "".join(f'{n},"text {n}\nsecond line"\n' for n in range(5000))
    small = partial(dialect.CsvOptions, range_bytes=4096)
    monkeypatch.setattr("frazil.pipeline.sources.csv.load_options.CsvOptions", small)
    told = place.load(place.file("a.csv", "n,t\n" + lines))
    assert told["rows_out"] == 5000 and place.table().files < 8
    assert sorted(row["n"] for row in place.rows("n")) == list(range(5000))
    lines_of = {int(row["_id"].rpartition(":")[2]) for row in place.rows("_id")}
    assert lines_of == set(range(2, 10_002, 2))


def test_what_cannot_be_loaded_says_so(place: Place) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"files": [str(place.folder / "absent.csv")]}, "no_such_file"),
        ({"files": [str(place.folder)]}, "not_a_file"),
        ({"files": [place.file("empty.csv", "")]}, "empty_files"),
        ({"files": [place.file("cut.gz", gzip.compress(b"a\n" * 9999)[:-20])]}, "broken_compression"),
        ({"files": []}, "bad_load"),
        ({"files": ["x"], "mode": "upsert"}, "bad_load"),
        ({"files": ["x"], "max_bad": "many"}, "bad_load"),
        ({"files": ["x"], "delimiter": "ab"}, "bad_csv_option"),
        ({"files": ["x"], "tabel": "t"}, "unknown_field"),
        ({"files": ["x"], "columns": {"a": "lnog"}}, "bad_type"),
    ]
    for params, code in cases:
        job = submit_job(place.lake.registry, "csv", "orders", {"table": "orders", **params})
        with pytest.raises(FrazilError) as refused:
            place.loads.run(job, lambda progress: None)
        assert refused.value.code == code, refused.value
    assert place.lake.names() == []


def test_lineage_tells_where_rows_come_from(place: Place) -> None:
    place.load(place.file("a.csv", "n\n1\n"))
    place.load(place.file("a.csv", "n\n2\n3\n"))
    (entry,) = lineage(load_records(place.lake.registry, place.table().uuid))
    assert (entry["source"], entry["job"], entry["loads"], entry["rows"]) == ("csv:a.csv", "ingest csv", 2, 3)


def test_uploads_go_when_their_load_is_done(place: Place) -> None:
    folder = place.folder / "uploads" / "1"
    folder.mkdir(parents=True)
    path = folder / "a.csv"
    path.write_text("n\n1\n")
    place.load(str(path), uploaded=True)
    assert not folder.exists() and place.rows("n") == [{"n": 1}]


def test_rows_go_to_an_entity_as_upserts(place: Place) -> None:
    spec = parse_table(
        {"name": "persons", "kind": "entity", "key": ["id"], "columns": {"id": "long", "name": "string"}}
    )
    create_entity(place.lake, spec, stream="s", identity="i")
    path = place.file("p.csv", "id,name\n1,Ada\n,nobody\n2,Grace\n")
    told = place.load(path, table="persons", max_bad="50%")
    assert (told["rows_out"], told["quarantined"]) == (2, 1)
    place.loads.run(place.ask(place.file("p2.csv", "id,name\n1,Ada L.\n"), table="persons"), lambda progress: None)
    assert [(row["_op"], row["id"], row["name"], row["_source"]) for row in place.sender.rows] == [
        ("upsert", 1, "Ada", "csv:p.csv"),
        ("upsert", 2, "Grace", "csv:p.csv"),
        ("upsert", 1, "Ada L.", "csv:p2.csv"),
    ]
    assert place.load(path, table="persons")["load"] is None
    with pytest.raises(InvalidInput):
        place.load(place.file("p3.csv", "id,name\n9,x\n"), table="persons", mode="replace")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_load_that_is_killed_is_finished_by_the_next_process(place: Place, point: str, mode: str) -> None:
    place.load(place.file("before.csv", "n,s\n1,a\n"))
    lines = "".join(f"{n},x\n" if n % 10 else f"{n}\n" for n in range(100))
    job = place.ask(place.file("b.csv", "n,s\n" + lines), mode=mode, max_bad="50%")
    kill_then_finish(place, point)
    told = job_status(place.lake.registry, job.id)
    assert (told["state"], told["rows_out"], told["quarantined"]) == ("done", 90, 10)
    expected = [n for n in range(100) if n % 10] + ([1] if mode == "append" else [])
    assert sorted(row["n"] for row in place.rows("n")) == sorted(expected)
    assert len(place.rows(name="main.orders__quarantine")) == 10
    assert place.load(str(place.folder / "b.csv"))["load"] is None, "and it is known that the file was loaded"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after_csv_tasks", "after_csv_declare", "before_csv_redo", "before_load_publish"])
def test_a_load_whose_guess_was_wrong_is_finished_after_a_kill(place: Place, point: str) -> None:
    lines = "".join(f"{n},{n}\n" for n in range(100_000))
    job = place.ask(place.file("b.csv", "n,s\n" + lines + "N/A,7\nragged\n"))
    kill_then_finish(place, point)
    told = job_status(place.lake.registry, job.id)
    assert (told["state"], told["rows_out"], told["quarantined"]) == ("done", 100_001, 1)
    assert place.types() == {"n": "string", "s": "long"}
    assert sorted(row["s"] for row in place.rows("s")) == sorted([*range(100_000), 7])
    assert len(place.rows(name="main.orders__quarantine")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after_csv_tasks", "amid_csv_send", "after_load_complete"])
def test_a_load_into_an_entity_that_is_killed_sends_each_row_once(place: Place, point: str) -> None:
    spec = parse_table({"name": "orders", "kind": "entity", "key": ["n"], "columns": {"n": "long", "s": "string"}})
    create_entity(place.lake, spec, stream="s", identity="i")
    job = place.ask(place.file("b.csv", "n,s\n" + "".join(f"{n},x\n" for n in range(200))))
    kill_then_finish(place, point)
    assert job_status(place.lake.registry, job.id)["rows_out"] == 200
    assert sorted(row["n"] for row in FolderSender(place.folder / "sent").rows) == list(range(200))


def kill_then_finish(place: Place, point: str) -> None:
    """Do the open jobs in a process that is killed at this point, then in others that are not."""
    words = address(place.lake), place.folder / "sent"
    killed_at(point, do_csv_jobs, *words)
    for _ in range(2):
        finished(do_csv_jobs, *words)


@pytest.mark.parametrize("limit", ["MAX_FILES_OF_A_TASK", "MAX_FILES_OF_A_LOAD"])
def test_rows_of_too_many_partitions_are_refused_and_leave_no_file(
    place: Place, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A partition for each row of a large file would fill the store with small files."""
    spec = parse_table({"name": "orders", "columns": {"city": "string"}, "partition": ["city"]})
    place.lake.create(spec, stream="s", identity="i")
    monkeypatch.setattr(data_files, limit, 10)
    path = place.file("orders.csv", "city\n" + "".join(f"c{number}\n" for number in range(30)))
    with pytest.raises(InvalidInput) as refused:
        place.load(path)
    assert refused.value.code == "too_many_partitions" and "coarser" in refused.value.hint
    assert place.rows() == []
    assert list((place.folder / "warehouse").rglob("*.parquet")) == []
    place.load(place.file("few.csv", "city\na\nb\n"))
    assert len(place.rows()) == 2
