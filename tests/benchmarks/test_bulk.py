"""The benchmarks of bulk loads and entities, as small as they go; and what they say where dlt is not to be had."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks import csv as csv_bench
from benchmarks import csv_load, dlt_control, entity_load
from benchmarks import entity as entity_bench
from benchmarks import postgres as postgres_bench
from benchmarks.csv_memory import Peak, _check_room
from benchmarks.dlt_control import DltControl, start_dlt
from benchmarks.entity_reading import Reading
from benchmarks.postgres_server import Database, database
from benchmarks.report import Machine
from frazil.errors import Misconfigured, Unavailable
from tests.benchmarks.test_bench import bench

MACHINE = Machine(2, 0.5)
WITHOUT = DltControl(None, "it was not asked for")
WITH = DltControl(None, version="1.0")


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
def test_csv(tmp_path: Path) -> None:
    report = bench(tmp_path, "csv", "--rows", "20000", "--rounds", "1", "--no-dlt")
    figure, control = report["figure"], report["control"]
    assert figure["rows"] == 20_000
    assert report["ratio"] == pytest.approx(control["seconds"] / figure["seconds"], rel=0.01)
    assert control["dlt"] == {"not_measured": "it was not asked for"} and figure["goals"]["dlt"] is None
    assert report["reached"] is False, "a goal that was not measured is not reached"


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
def test_memory_of_a_load(tmp_path: Path) -> None:
    report = bench(tmp_path, "csv", "--memory", "--gigabytes", "0.02")
    figure = report["figure"]
    assert figure["looks"] > 1 and sum(figure["parts"].values()) == figure["bytes"]
    assert {"pipeline", "pipeline (java)", "gateway"} <= set(figure["parts"])
    assert report["reached"] is False, "so small a file says nothing about the goal"


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
def test_postgres(tmp_path: Path) -> None:
    report = bench(tmp_path, "postgres", "--rows", "20000", "--rounds", "1", "--no-dlt")
    figure, control = report["figure"], report["control"]
    assert figure["rows"] == 20_000
    assert report["ratio"] == pytest.approx(control["seconds"] / figure["seconds"], rel=0.01)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
def test_entity(tmp_path: Path) -> None:
    sizes = ("--rows", "5000", "--changes", "1000", "--batches", "2", "--rounds", "1")
    report = bench(tmp_path, "entity", *sizes)
    figure, control = report["figure"], report["control"]
    assert figure["visible"]["batches"] == 2
    assert figure["visible"]["p50_ms"] <= figure["visible"]["p99_ms"]
    assert report["ratio"] == pytest.approx(figure["fold_s"] / control["merge_s"], rel=0.01)


def test_the_file_has_the_records_that_it_says(tmp_path: Path) -> None:
    made = csv_load.write_orders(tmp_path / "orders.csv", 20_000)
    with made.path.open(newline="") as file:
        header, *records = csv.reader(file)
    full = [record for record in records if len(record) == len(header) == 10]
    assert len(records) == made.records == 20_000 and made.bad == 2
    assert len(full) == 19_999, "one lacks fields"
    assert [record[2] for record in full if not 1 <= int(record[2]) <= 1000] == ["0"], "one has no quantity"
    assert any("," in record[9] for record in full) and any('"' in record[9] for record in full)


def test_a_large_file_has_its_size(tmp_path: Path) -> None:
    made = csv_load.write_large(tmp_path / "large.csv", 12_000_000)
    assert 12_000_000 <= made.size < 36_000_000
    with made.path.open(newline="") as file:
        assert sum(1 for _ in csv.reader(file)) - 1 == made.records


def test_a_file_that_does_not_fit_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="GB of disk"):
        _check_room(tmp_path, 1 << 60)


def test_changes_have_each_key_once_and_a_tenth_is_new() -> None:
    drawn = [entity_load.keys_to_change(5_000, 1_000, seed) for seed in range(3)]
    assert [len(set(keys)) for keys in drawn] == [1_000] * 3
    new = [{key for key in keys if key >= 5_000} for keys in drawn]
    assert [len(keys) for keys in new] == [100] * 3
    assert len(set.union(*new)) == 300, "what is new in one round is new in the others too"


def test_the_faster_way_of_dlt_counts() -> None:
    taken = {"ours": [2.0], "spark": [3.0], "csv by duckdb": [9.0], "csv by pyarrow": [5.0]}
    report = csv_bench.report(1_000, taken, WITH, MACHINE)
    assert report.figure["ratios"] == {"spark": 1.5, "dlt": 2.5}
    assert report.figure["goals"] == {"spark": True, "dlt": False} and not report.reached
    assert csv_bench.report(1_000, {**taken, "ours": [1.0]}, WITH, MACHINE).reached
    assert report.control["dlt"]["not_measured"] == {"csv by pandas": "the environment of dlt has no pandas"}
    slow = csv_bench.report(1_000, {**taken, "csv by pandas": [90.0]}, WITH, MACHINE)
    assert slow.figure["ratios"]["dlt"] == 2.5 and slow.control["dlt"]["seconds"]["csv by pandas"] == 90.0


def test_the_archive_is_judged_by_both_controls() -> None:
    taken = {"ours": [2.0, 2.0, 9.0], "copy": [1.5, 1.0, 1.5], "connectorx": [7.0, 7.0, 1.0]}
    report = postgres_bench.report(1_000, taken, WITH, MACHINE)
    assert report.figure["ratios"] == {"copy": 0.75, "dlt": 3.5} and report.reached
    assert not postgres_bench.report(1_000, {**taken, "connectorx": [4.0]}, WITH, MACHINE).reached
    del taken["connectorx"]
    told = postgres_bench.report(1_000, taken, WITHOUT, MACHINE)
    assert told.control["dlt"] == {"not_measured": "it was not asked for"} and not told.reached


def test_an_entity_is_judged_by_both_goals() -> None:
    taken = {"entity": Reading([0.1], [0.012]), "log": Reading([0.1], [0.010])}
    report = entity_bench.report(1_000, 100, taken, [3.0], [2.0], MACHINE)
    assert report.figure["ratios"]["visible_p50"] == pytest.approx(1.2) and report.reached
    assert not entity_bench.report(1_000, 100, taken, [5.0], [2.0], MACHINE).reached


def test_a_peak_is_the_most_that_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([{"bus": 3, "gateway": 1}, {"bus": 5, "gateway": 2}, {"bus": 4, "gateway": 2}])
    monkeypatch.setattr("benchmarks.csv_memory.group_bytes", lambda data: next(seen))
    peak = Peak()
    for _ in range(3):
        peak.look(None)  # type: ignore[arg-type]
    assert (peak.bytes, peak.parts, peak.looks) == (7, {"bus": 5, "gateway": 2}, 3)


def test_without_its_environment_dlt_is_not_measured_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("no-such-package-of-anybody==1.0 --hash=sha256:" + "0" * 64 + "\n")
    monkeypatch.setattr(dlt_control, "LOCK", lock)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with ExitStack() as running:
        control = start_dlt(running, tmp_path, cache=tmp_path / "cache", wanted=True)
    assert control.child is None and "cannot be made" in control.reason
    assert not list((tmp_path / "cache").glob("*/complete")), "the next run begins anew"


def test_an_environment_that_is_complete_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("")
    monkeypatch.setattr(dlt_control, "LOCK", lock)
    python = dlt_control.environment_in(tmp_path)
    made = python.parent.parent.stat().st_ctime_ns
    assert dlt_control.environment_in(tmp_path) == python and python.parent.parent.stat().st_ctime_ns == made
    lock.write_text("# another lock\n")
    made_anew: list[Path] = []

    def make(place: Path, **options: Any) -> None:
        made_anew.append(place)
        raise OSError("not another one, this takes its time")

    monkeypatch.setattr("venv.create", make)
    with pytest.raises(OSError, match="not another one"):
        dlt_control.environment_in(tmp_path)
    assert made_anew and made_anew != [python.parent.parent]


def test_the_control_script_answers_line_by_line(tmp_path: Path) -> None:
    """With a stand-in for dlt, since the real one is not here: what is asked for arrives, answers are all it says."""
    stand_in = tmp_path / "dlt"
    for package in ("", "common", "common/libs"):
        (stand_in / package).mkdir(exist_ok=True)
        (stand_in / package / "__init__.py").write_text("")
    (stand_in / "__init__.py").write_text(STAND_IN)
    (stand_in / "common" / "libs" / "pyiceberg.py").write_text(
        "def get_iceberg_tables(pipeline, name):\n    return {name: pipeline}\n"
    )
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n4,5\n")
    order = {"load": "csv by pyarrow", "path": str(tmp_path / "a.csv"), "folder": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(dlt_control.LOCK.with_name("plain_dlt.py"))],
        input=json.dumps(order) + "\n",
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hello, answer = (json.loads(line) for line in done.stdout.splitlines())
    assert hello["dlt"] == "0.stand-in" and answer["rows"] == 2 and answer["seconds"] >= 0


STAND_IN = """
__version__ = "0.stand-in"

class pipeline:
    def __init__(self, name, **words):
        print("noise that is no answer")
    def run(self, resource, **words):
        assert words == {"table_format": "iceberg", "loader_file_format": "parquet"}
        self.rows = sum(table.num_rows for table in resource())
    def scan(self):
        return self
    def count(self):
        return self.rows

def resource(made, name):
    return made

class destinations:
    filesystem = dict
"""


def test_a_lock_without_addresses_and_with_hashes() -> None:
    text = dlt_control.LOCK.read_text()
    assert "://" not in text and text.count("==") > 30
    assert all("--hash=sha256:" in entry for entry in text.split("\n\n") if "==" in entry)


def test_a_dsn_is_taken_apart_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DSN", "postgresql://ann:p%40ss@db.example:6543/shop")
    with database("BENCH_DSN") as found:
        assert found == Database("db.example", 6543, "ann", "shop", "p@ss")
        assert found.url == "postgresql://ann:p%40ss@db.example:6543/shop"
        assert "p@ss" not in repr(found)
    monkeypatch.setenv("BENCH_DSN", "host=db.example password=p@ss")
    with pytest.raises(Misconfigured) as refused, database("BENCH_DSN"):
        raise AssertionError("it cannot be entered")
    assert "p@ss" not in str(refused.value.body())
