from __future__ import annotations

import gzip
import itertools
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.table import StaticTable

from frazil.errors import Unavailable
from frazil.events.declaration import parse_table
from frazil.lake.catalog import Lake, LakeTable, export_hint, open_lake
from frazil.lake.catalog.fsync_io import FsyncFileIO
from frazil.lake.catalog.version_hint import HINT_FILE, KEPT_COPIES, ExportHint, HintFolder
from frazil.storage import Warehouse
from tests.contract.seaweed import SeaweedServer
from tests.lake.staging import append
from tests.lake_fixtures import SparkLake, some_table
from tests.store_fixtures import _extension

_numbers = itertools.count(1)


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """A folder whose name is a trap for every place that quotes it, or a bucket."""
    if getattr(request, "param", "file") == "file":
        return Warehouse(f"file://{tmp_path}/it's a ware house")
    seaweed: SeaweedServer = request.getfixturevalue("seaweed")
    return seaweed.warehouse(f"export{next(_numbers)}")


@pytest.fixture
def lake(tmp_path: Path, warehouse: Warehouse) -> Iterator[Lake]:
    opened = open_lake(f"sqlite:///{tmp_path}/catalog.db", warehouse)
    yield opened
    opened.close()


@pytest.fixture
def name(lake: Lake) -> str:
    """A table with one commit."""
    spec = parse_table({"name": "notes", "columns": {"v": "long"}})
    lake.create(spec, stream="notes", identity="i")
    append(lake, spec.name, [{"v": 1}, {"v": 2}])
    return spec.name


def by_duckdb(hint: ExportHint, warehouse: Warehouse) -> list[int]:
    with duckdb.connect() as connection:
        for extension in ("httpfs", "avro", "iceberg"):
            connection.load_extension(str(_extension(extension)))
        if warehouse.is_s3:
            connection.execute(
                f"CREATE SECRET (TYPE s3, KEY_ID '{warehouse.access_key_id}', SECRET '{warehouse.secret_access_key}', "
                f"REGION '{warehouse.region}', ENDPOINT '{(warehouse.endpoint or '').removeprefix('http://')}', "
                "URL_STYLE 'path', USE_SSL false)"
            )
        query = "SELECT v FROM iceberg_scan($folder) ORDER BY v"
        return [row[0] for row in connection.execute(query, {"folder": hint.location}).fetchall()]


def by_pyiceberg(hint: ExportHint, warehouse: Warehouse) -> list[int]:
    table = StaticTable.from_metadata(hint.location, warehouse.for_pyiceberg())
    return sorted(table.scan().to_arrow()["v"].to_pylist())


def files(table: LakeTable) -> set[str]:
    folder = Path(table.iceberg.location().removeprefix("file://")) / "metadata"
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("warehouse", ["file", pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
def test_duckdb_and_pyiceberg_open_the_folder_and_follow_it(lake: Lake, name: str, warehouse: Warehouse) -> None:
    first = export_hint(lake.table(name))
    assert by_duckdb(first, warehouse) == by_pyiceberg(first, warehouse) == [1, 2]

    append(lake, name, [{"v": 3}])
    assert by_duckdb(first, warehouse) == [1, 2], "a reader of the hint stays where the export left it"
    second = export_hint(lake.table(name))
    assert second.version == first.version + 1
    assert by_duckdb(second, warehouse) == by_pyiceberg(second, warehouse) == [1, 2, 3]

    for v in range(4, 4 + KEPT_COPIES):
        append(lake, name, [{"v": v}])
        last = export_hint(lake.table(name))
    assert by_duckdb(last, warehouse) == by_pyiceberg(last, warehouse) == list(range(1, 4 + KEPT_COPIES))
    io = lake.table(name).iceberg.io
    copies = [n for n in range(1, 10) if io.new_input(f"{warehouse_url(lake, name)}/v{n}.metadata.json").exists()]
    assert copies == list(range(last.version - KEPT_COPIES + 1, last.version + 1))


def warehouse_url(lake: Lake, name: str) -> str:
    return f"{lake.table(name).iceberg.location()}/metadata"


def test_the_same_state_again_writes_nothing(lake: Lake, name: str) -> None:
    first = export_hint(lake.table(name))
    before = {path: path.stat().st_mtime_ns for path in Path(first.location, "metadata").iterdir()}
    assert export_hint(lake.table(name)) == first
    assert {path: path.stat().st_mtime_ns for path in Path(first.location, "metadata").iterdir()} == before
    assert Path(first.hint_file).read_bytes() == b"1", "DuckDB and PyIceberg take a line break for part of the number"
    original = Path(lake.table(name).metadata_location.removeprefix("file://"))
    assert Path(first.metadata).read_bytes() == original.read_bytes()


def test_a_table_without_rows_can_be_exported(lake: Lake, warehouse: Warehouse) -> None:
    spec = parse_table({"name": "empty", "columns": {"v": "long"}})
    lake.create(spec, stream="empty", identity="i")
    assert by_pyiceberg(export_hint(lake.table(spec.name)), warehouse) == []


def test_a_copy_that_a_crash_left_without_its_hint_is_stepped_over(lake: Lake, name: str, warehouse: Warehouse) -> None:
    first = export_hint(lake.table(name))
    stale = Path(first.location, "metadata", "v2.metadata.json")
    stale.write_bytes(Path(first.metadata).read_bytes())
    ahead = Path(first.location, "metadata", "v4.metadata.json")
    ahead.write_bytes(b"{")
    append(lake, name, [{"v": 3}])
    hint = export_hint(lake.table(name))
    assert hint.version == 5, "3 is free, but Spark would go on from there to 4"
    assert by_duckdb(hint, warehouse) == [1, 2, 3]


@pytest.mark.parametrize("left", [b"", b"1\n", b"zero", b"9" * 5000])
def test_a_hint_of_another_hand_is_replaced(lake: Lake, name: str, warehouse: Warehouse, left: bytes) -> None:
    Path(warehouse_url(lake, name).removeprefix("file://"), HINT_FILE).write_bytes(left)
    hint = export_hint(lake.table(name))
    assert Path(hint.hint_file).read_bytes() == str(hint.version).encode()
    assert by_duckdb(hint, warehouse) == [1, 2]


def test_commits_and_their_clean_up_leave_the_export_alone(lake: Lake, name: str, warehouse: Warehouse) -> None:
    hint = export_hint(lake.table(name))
    lake.set_properties(name, {"write.metadata.previous-versions-max": "2"})
    for v in range(3, 9):
        append(lake, name, [{"v": v}])
    table = lake.table(name)
    newest = int(Path(table.metadata_location).name.partition("-")[0])
    logs = [file for file in files(table) if file.endswith(".metadata.json") and not file.startswith("v")]
    assert len(logs) < newest, "the clean-up works as without an export"
    assert {f"v{hint.version}.metadata.json", HINT_FILE} <= files(table)
    assert by_pyiceberg(hint, warehouse) == [1, 2]


def test_exports_at_once_are_all_right(lake: Lake, name: str, warehouse: Warehouse) -> None:
    table = lake.table(name)
    with ThreadPoolExecutor(8) as threads:
        hints = list(threads.map(export_hint, [table] * 16))
    assert by_duckdb(hints[0], warehouse) == by_pyiceberg(hints[0], warehouse) == [1, 2]
    assert not [file for file in files(table) if file.endswith(".draft")]


def test_a_copy_that_another_export_deletes_first_is_no_error(lake: Lake, name: str) -> None:
    class Overtaken(FsyncFileIO):
        def delete(self, location: Any) -> None:
            super().delete(location)
            super().delete(location)

    folder = HintFolder(Overtaken(), warehouse_url(lake, name))
    place = Path(folder.url.removeprefix("file://"))
    for version in range(1, 5):
        (place / f"v{version}.metadata.json").write_bytes(b"{}")
    folder.forget_copies(before=4)
    assert [path.name for path in place.glob("v*.metadata.json")] == ["v4.metadata.json"]


def test_a_state_whose_file_is_cleaned_up_is_asked_for_again(lake: Lake, name: str) -> None:
    old = lake.table(name)
    Path(old.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(Unavailable) as caught:
        export_hint(old)
    assert caught.value.code == "table_moved_on"


def test_compressed_metadata_is_exported_plain(lake: Lake, name: str, warehouse: Warehouse) -> None:
    """As Spark writes it where the table's properties say so."""
    plain = Path(lake.table(name).metadata_location.removeprefix("file://"))
    packed = plain.with_name("00009-a.gz.metadata.json")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    table = StaticTable.from_metadata(f"file://{packed}", {"py-io-impl": "frazil.lake.catalog.fsync_io.FsyncFileIO"})
    hint = export_hint(LakeTable(name, table))
    assert by_duckdb(hint, warehouse) == by_pyiceberg(hint, warehouse) == [1, 2]


def test_the_commands_run_as_they_are_printed(lake: Lake, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    hint = export_hint(lake.table(name))
    exec(hint.commands["pyiceberg"])  # noqa: S102 (the command is our own)
    assert "v: [[1,2]]" in capfd.readouterr().out
    program, flag, text = shlex.split(hint.commands["duckdb"])
    # The extensions of the development install need no download; all else is run in the shell as it is printed.
    local = "; ".join(f"LOAD '{_extension(name)}'" for name in ("avro", "iceberg"))
    assert "INSTALL iceberg; LOAD iceberg;" in text
    shell = Path(sys.executable).with_name(program)
    text = text.replace("INSTALL iceberg; LOAD iceberg;", f"{local};")
    done = subprocess.run([shell, "-csv", flag, text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3, "a header and the two rows"


@pytest.mark.slow
@pytest.mark.spark
def test_spark_opens_the_folder_and_follows_it(spark_lake: SparkLake) -> None:
    spec = some_table()
    spark_lake.lake.create(spec, stream=spec.short_name, identity="i")

    def by_spark(hint: ExportHint) -> list[Any]:
        rows = spark_lake.session.newSession().read.format("iceberg").load(hint.location).orderBy("v").collect()
        return [row.v for row in rows]

    for v in range(1, KEPT_COPIES + 3):
        append(spark_lake.lake, spec.name, [{"v": v}])
        hint = export_hint(spark_lake.lake.table(spec.name))
        assert by_spark(hint) == list(range(1, v + 1))
    append(spark_lake.lake, spec.name, [{"v": 100}])
    assert 100 not in by_spark(hint)
    Path(hint.location, "metadata", f".{HINT_FILE}.crc").write_bytes(b"crc\0 of another content")
    export_hint(spark_lake.lake.table(spec.name))
    assert 100 in by_spark(hint)
