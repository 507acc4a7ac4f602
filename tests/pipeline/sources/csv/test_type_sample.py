"""One pass with guessed types against types that are known before: the same table, rows, quarantine and report."""

from __future__ import annotations

import bz2
import gzip
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import FrazilError
from frazil.events.declaration import TableSpec, parse_table
from frazil.lake.catalog import Lake, LakeTable, open_lake
from frazil.pipeline.sources.csv import CsvLoads, type_sample
from frazil.pipeline.sources.csv import type_sample as guess
from frazil.pipeline.sources.csv.column_mapping import shape_of
from frazil.pipeline.sources.csv.dialect import CsvOptions
from frazil.pipeline.sources.csv.field_text import read_text
from frazil.pipeline.sources.csv.scan import scan_file
from frazil.pipeline.sources.csv.text_ranges import CsvRange
from frazil.pipeline.sources.csv.type_inference import ColumnFacts, decide, facts_of
from frazil.registry import Job, submit_job
from frazil.storage import Warehouse
from tests.pipeline.in_process import InProcessTasks, KeptSender

# `GUESS_SEEDS=2000` searches further.
_SEEDS = range(int(os.environ.get("GUESS_SEEDS", "150")))
SEEDS = [seed if seed < 40 else pytest.param(seed, marks=pytest.mark.slow) for seed in _SEEDS]
KINDS = ("long", "decimal", "double", "date", "timestamp", "bool", "string", "null")
NASTY = ("", "", "N/A", "007", "-", "1e5", "1e400", "+1", "0x1F", " 1", "2024-05-01", "true", "99999999999999999999")
LATE = (*NASTY, "3.14159265", "123456789012345678.25", "2024-05-01T12:00:00Z", "2024-05-01 12:00:00.5+02:00", "x")


@dataclass(frozen=True)
class Place:
    folder: Path
    lake: Lake
    tasks: CountedTasks

    def load(self, table: str, files: list[str], **options: Any) -> dict[str, Any] | tuple[str, Any]:
        """The report without what differs by nature; or the code of the refusal."""

        def make(spec: TableSpec, *, location: str | None = None) -> LakeTable:
            return self.lake.create(spec, stream="s", identity="i", location=location)

        job: Job = submit_job(self.lake.registry, "csv", table, {"table": table, "files": files, **options})
        try:
            told = CsvLoads(self.lake, self.tasks, make, KeptSender()).run(job, lambda progress: None)
        except FrazilError as error:
            return error.code, error.details
        wanted = ("rows_in", "rows_out", "quarantined", "bytes_in", "by_column", "files", "mode")
        return {name: told[name] for name in wanted}

    def seen(self, table: str) -> tuple[Any, ...]:
        """Columns and rows of a table and of its quarantine, without the marks of the load."""
        return tuple(_seen(self.lake.table(f"main.{name}")) for name in (table, f"{table}__quarantine"))

    def strays(self) -> set[Path]:
        """Data files that no table knows."""
        known = {
            Path(task.file.file_path.removeprefix("file://"))
            for name in self.lake.names()
            for task in self.lake.table(name).iceberg.scan().plan_files()
        }
        return set(self.folder.glob("warehouse/**/*.parquet")) - known


class CountedTasks(InProcessTasks):
    def __init__(self) -> None:
        self.runs = 0

    def run(self, *arguments: Any, **named: Any) -> list[Any]:
        self.runs += 1
        return super().run(*arguments, **named)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Ranges and samples are tiny: a small file has many of them."""
    monkeypatch.setattr("frazil.pipeline.sources.csv.load_options.CsvOptions", partial(CsvOptions, range_bytes=256))
    monkeypatch.setattr(type_sample, "SAMPLE_BYTES", 100)
    monkeypatch.setattr(type_sample, "SAMPLES", 2)
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    yield Place(tmp_path, lake, CountedTasks())
    lake.close()


def known_types(files: list[str], folder: Path, null_words: tuple[str, ...] = ()) -> dict[str, str]:
    """The types of all columns, each file read as a whole, as the rules say."""
    facts: dict[str, ColumnFacts] = {}
    for path in files:
        file = scan_file(Path(path), folder, CsvOptions(range_bytes=1 << 30))
        shape = shape_of(file)
        columns = _whole(file.ranges[0], file, null_words) if file.ranges else ()
        for name, column in zip(shape.names, columns, strict=False):
            facts[name] = facts.get(name, ColumnFacts()) + facts_of(column)
        for name in shape.names:
            facts.setdefault(name, ColumnFacts())
    return {name: str(decide(found)) for name, found in facts.items()}


def _whole(csv_range: CsvRange, file: Any, null_words: tuple[str, ...]) -> tuple[pa.StringArray, ...]:
    return read_text(csv_range, file.dialect, file.width, range(file.width), null_words).columns


def _seen(table: LakeTable) -> tuple[dict[str, str], list[Any]]:
    rows = table.iceberg.scan().to_arrow().to_pylist()
    for row in rows:
        row.pop("_seq", None)
        row.pop("load", None)
        for name in ("_ts", "_received_at", "loaded_at"):
            row.pop(name, None)
        if "_id" in row:
            row["_id"] = row["_id"].partition(":")[2]
    columns = {name: str(column.type) for name, column in table.spec.columns.items()}
    return columns, sorted(rows, key=repr)


def values(kind: str, rng: random.Random, count: int) -> list[str]:
    def one() -> str:
        number = rng.randrange(-(10 ** rng.randrange(1, 9)), 10**6)
        day = f"{rng.randrange(1900, 2100)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
        return {
            "long": str(number),
            "decimal": f"{number}.{rng.randrange(100):02d}",
            "double": f"{rng.random():.6e}",
            "date": day,
            "timestamp": f"{day}{rng.choice('T ')}{rng.randrange(24):02d}:00:00{rng.choice(['', 'Z', '+02:00'])}",
            "bool": rng.choice(["true", "False"]),
            "string": rng.choice(["word", '"quoted, ""so"""', '"two\nlines"', "ü", '""']),
            "null": "",
        }[kind]

    blank = rng.choice([0.0, 0.3])
    return ["" if rng.random() < blank else one() for _ in range(count)]


def nasty_text(rng: random.Random) -> str:
    """A file in which what the beginning promises may be broken anywhere."""
    width, count = rng.randrange(1, 5), rng.randrange(0, 60)
    columns = []
    for _ in range(width):
        column = values(rng.choice(KINDS), rng, count)
        if count and rng.random() < 0.4:  # empty or of another kind at first
            other = rng.choice(["null", "long", "date"])
            cut = rng.randrange(count)
            column = [*values(other, rng, cut), *column[cut:]]
        if count and rng.random() < 0.4:  # one value too many: in the last line, at a border, anywhere
            column[rng.choice([-1, count // 2, rng.randrange(count)])] = rng.choice(LATE)
        columns.append(column)
    lines = [",".join(row) for row in zip(*columns, strict=True)]
    for _ in range(rng.choice([0, 0, 1, 3])):
        ragged = rng.choice(["1", "a,b,c,d,e,f", "N/A" + ",x" * width, "", '"open' if rng.random() < 0.2 else ""])
        lines.insert(rng.randrange(len(lines) + 1), ragged)
    end = rng.choice(["\n", "\n", "\r\n"])
    header = ",".join(f"c{number}" for number in range(width))
    return end.join([header, *lines]) + rng.choice(["", end])


PACKED: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("csv", lambda data: data),
    ("csv", lambda data: data),
    ("csv.gz", gzip.compress),
    ("csv.bz2", bz2.compress),
    ("utf16.csv", lambda data: data.decode().encode("utf-16")),
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_guess_changes_nothing(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    files = []
    for number in range(rng.choice([1, 1, 1, 2, 3])):
        suffix, packed = rng.choice(PACKED)
        path = place.folder / f"{number}.{suffix}"
        path.write_bytes(packed(nasty_text(rng).encode()))
        files.append(str(path))
    null_words = rng.choice([[], ["N/A"]])
    options: dict[str, Any] = {"null_words": null_words, "delimiter": ",", "header": True, "max_bad": "100%"}
    if rng.random() < 0.2:
        options["max_bad"] = 0
    types = known_types(files, place.folder, tuple(null_words))
    told = place.load("known", files, columns=types, **options)
    place.tasks.runs = 0
    assert place.load("guessed", files, **options) == told
    assert place.seen("guessed") == place.seen("known")
    assert place.tasks.runs <= 2
    if isinstance(told, dict):
        assert not place.strays()


def test_a_guess_that_holds_takes_one_pass(place: Place) -> None:
    path = place.folder / "a.csv"
    path.write_text("n,d,t\n" + "".join(f"{n},{n}.5,2024-05-01\n" for n in range(500)))
    place.load("t", [str(path)])
    assert place.tasks.runs == 1
    path.write_text(path.read_text() + "late,1.25,\n")
    place.load("u", [str(path)])
    assert place.tasks.runs == 3
    assert {name: str(column.type) for name, column in place.lake.table("main.u").spec.columns.items()} == {
        "n": "string",
        "d": "decimal(18,2)",
        "t": "date",
    }
    assert not place.strays()


@pytest.mark.parametrize("late", ["", "1234567890123.5", "123.4567", "99999999999", "N/A"])
@pytest.mark.parametrize("policy", ["evolve", "keep"])
def test_a_table_that_is_there_grows_by_all_the_data(place: Place, late: str, policy: str) -> None:
    columns = {"i": "int", "d": "decimal(5,2)"}
    for name in ("guessed", "known"):
        spec = parse_table({"name": name, "columns": columns, "unknown_fields": policy})
        place.lake.create(spec, stream="s", identity="i")
    lines = [f"{n},{n}.5,{n},x" for n in range(100)]
    path = place.folder / "a.csv"
    path.write_text("\n".join(["i,d,n,s", *lines, f"{late},{late},{late},{late}"]))
    told = place.load("guessed", [str(path)], max_bad="100%")
    whole = partial(CsvOptions, range_bytes=1 << 30)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("frazil.pipeline.sources.csv.load_options.CsvOptions", whole)
        patched.setattr(guess, "SAMPLE_BYTES", 1 << 30)
        assert place.load("known", [str(path)], max_bad="100%") == told
    assert place.seen("guessed") == place.seen("known")
    assert not place.strays()


def test_a_table_made_by_another_hand_meanwhile_is_loaded_into(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place.folder / "a.csv"
    path.write_text("n\n" + "".join(f"{n}\n" for n in range(300)))
    run = place.tasks.run

    def beaten(*arguments: Any, **named: Any) -> list[Any]:
        if not place.lake.names():
            place.lake.create(parse_table({"name": "t", "columns": {"n": "string"}}), stream="s", identity="i")
        return run(*arguments, **named)

    monkeypatch.setattr(place.tasks, "run", beaten)
    place.load("t", [str(path)])
    assert sorted(int(row["n"]) for row in place.lake.table("main.t").iceberg.scan().to_arrow().to_pylist()) == list(
        range(300)
    )
    assert not place.strays()


def test_a_load_that_is_refused_amid_its_tasks_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place.folder / "a.csv"
    path.write_text("n\n" + "".join(f"{n}\n" for n in range(300)))
    run = place.tasks.run

    def changed(pieces: list[Any], *arguments: Any, **named: Any) -> list[Any]:
        gone = [replace(csv_range, path=f"{path}.gone") for csv_range in pieces[-1].ranges]
        return run([*pieces[:-1], replace(pieces[-1], ranges=tuple(gone))], *arguments, **named)

    monkeypatch.setattr(place.tasks, "run", changed)
    code, _ = place.load("t", [str(path)])
    assert code == "file_changed"
    assert place.lake.names() == [] and not place.strays()


@pytest.mark.parametrize("texts", [["1"], ["1.5", "2"], ["2024-05-01"], ["2024-05-01T00:00:00"], ["true"], ["x"], []])
def test_no_guess_stands_against_other_facts(texts: list[str]) -> None:
    facts = facts_of(pa.array(texts, pa.string()))
    column = type_sample.GuessedColumn("c", 0, facts, decide(facts), widening=False)
    for more in ([], *([text] for text in LATE)):
        told = facts_of(pa.array(more, pa.string()))
        assert column.stands(told) == (decide(facts_of(pa.array([*texts, *more], pa.string()))) == decide(facts))
