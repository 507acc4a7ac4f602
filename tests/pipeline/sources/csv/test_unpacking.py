"""Files that grow when they are unpacked, and files that are made to cost much: each is stopped, and leaves nothing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.errors import FrazilError, NotFound, TooLarge
from frazil.pipeline.sources.csv import CsvLoads, UnpackLimits
from frazil.pipeline.sources.csv.dialect import CsvOptions
from frazil.pipeline.sources.csv.range_splitter import MAX_RANGE_LINES
from frazil.pipeline.sources.csv.scan import CsvFile, scan_file
from frazil.pipeline.sources.csv.unpacking import FREE_GROWTH_BYTES, UnpackBudget, compression_of
from frazil.registry import submit_job
from tests.pipeline.in_process import InProcessTasks
from tests.pipeline.sources.csv.test_handler import Place
from tests.pipeline.sources.csv.test_handler import place as place

Pack = Callable[[bytes], bytes]


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


PACKERS = [gzip.compress, bz2.compress, zstd]
FREE = 1 << 20
BOMB = b"1,2,3\n" * (3 * FREE // 6)


@pytest.fixture(autouse=True)
def _less_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FREE_GROWTH_BYTES == 64 << 20
    monkeypatch.setattr("frazil.pipeline.sources.csv.unpacking.FREE_GROWTH_BYTES", FREE)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def scanned(spool: Path, data: bytes, budget: UnpackBudget | None = None, encoding: str | None = None) -> CsvFile:
    path = spool.parent / "file.csv"
    path.write_bytes(data)
    return scan_file(path, spool, CsvOptions(encoding=encoding), name="file.csv", budget=budget)


def refused(spool: Path, data: bytes, budget: UnpackBudget | None = None, encoding: str | None = None) -> FrazilError:
    with pytest.raises(FrazilError) as caught:
        scanned(spool, data, budget, encoding)
    assert not list(spool.iterdir()), "nothing stays in the spool folder"
    assert str(spool.parent) not in str(caught.value.body()) and "file.csv" in caught.value.message
    return caught.value


@pytest.mark.parametrize("pack", PACKERS)
def test_a_packed_file_that_explodes_is_stopped(spool: Path, pack: Pack) -> None:
    error = refused(spool, pack(BOMB))
    assert isinstance(error, TooLarge) and error.code == "file_explodes"
    generous = UnpackBudget(UnpackLimits(max_ratio=100_000))
    assert scanned(spool, pack(BOMB), generous).lines == len(BOMB) // 6, "the ratio is what was refused"


@pytest.mark.parametrize("pack", PACKERS)
def test_many_members_explode_as_one_file(spool: Path, pack: Pack) -> None:
    member = pack(BOMB[: FREE // 2])
    assert refused(spool, member * 6).code == "file_explodes"


def test_a_file_that_is_much_alike_is_read(spool: Path) -> None:
    row = b"2026-11-01T00:00:00Z,eu-north-1,service-a,INFO,request served,200,GET,/v1/health,0.001\n"
    assert scanned(spool, gzip.compress(row * 10_000)).lines == 10_000, "one line again and again, below what is free"
    logged = b"".join(row.replace(b"00:00:00", b"%08d" % number) for number in range(3 * FREE // len(row)))
    packed = gzip.compress(logged, 9)
    assert len(logged) > 10 * len(packed) and scanned(spool, packed).lines == logged.count(b"\n")


@pytest.mark.parametrize("pack", PACKERS)
def test_the_files_of_a_load_count_together(spool: Path, pack: Pack) -> None:
    budget = UnpackBudget(UnpackLimits(max_bytes=2_000_000))
    content = b"1,2,3\n" * 150_000
    for _ in range(2):
        scanned(spool, pack(content), budget)
    for left in spool.iterdir():
        left.unlink()
    assert refused(spool, pack(content), budget).code == "unpacked_too_large"


def test_what_is_decoded_counts_and_a_second_look_does_not(spool: Path) -> None:
    content = b"a,b\n" + b"1,2\n" * 200_000 + b"1,\xe9\n"  # told to be Latin-1 by the last line only
    budget = UnpackBudget(UnpackLimits(max_bytes=len(content) + 1))
    assert scanned(spool, gzip.compress(content), budget).encoding == "iso8859-1"
    os.unlink(next(spool.iterdir()))
    grown = ("a,b\n" + "\u20ac\n" * 100_000).encode("cp1252")
    small = UnpackBudget(UnpackLimits(max_bytes=2 * len(grown) - 100_000))
    assert refused(spool, grown, small, encoding="cp1252").code == "unpacked_too_large", "one byte becomes three"


def test_the_disk_keeps_its_room(spool: Path) -> None:
    full = UnpackBudget(UnpackLimits(min_free_bytes=1 << 62))
    assert refused(spool, gzip.compress(b"a,b\n1,2\n"), full).code == "disk_full"
    assert scanned(spool, b"a,b\n1,2\n", full).lines == 2, "a file that is read where it lies needs no room"


def zipped(names: list[str], content: bytes = b"a,b\n1,2\n") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return packed.getvalue()


def tarred() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../etc/passwd"), io.BytesIO(b""))
    return packed.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        zipped(["a.csv"]),
        zipped(["../../evil.csv", "/etc/cron.d/evil"]),
        zipped([f"{number}.csv" for number in range(1000)]),
        zipped([]),
        lzma.compress(b"a,b\n1,2\n"),
        tarred(),
        gzip.compress(tarred()),
        zstd(zipped(["a.csv"])),
        b"7z\xbc\xaf\x27\x1c" + bytes(100),
        b"PAR1" + bytes(100),
    ],
    ids=["zip", "zip-paths", "zip-many", "zip-empty", "xz", "tar", "tar.gz", "zip-in-zstd", "7z", "parquet"],
)
def test_archives_are_not_opened(spool: Path, data: bytes) -> None:
    assert refused(spool, data).code == "unsupported_archive"


@pytest.mark.parametrize("inner", PACKERS)
@pytest.mark.parametrize("outer", PACKERS)
def test_what_is_packed_twice_is_refused(spool: Path, outer: Pack, inner: Pack) -> None:
    assert refused(spool, outer(inner(b"a,b\n1,2\n"))).code == "nested_compression"


def test_a_header_may_begin_like_a_packed_file(spool: Path) -> None:
    for text in (b"BZh,PK\nx,y\n", b"BZh9,b\n1,2\n", b"PK,id\na,b\n"):
        assert compression_of(text) is None and scanned(spool, text).width == 2


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_empty_members_are_nothing(spool: Path, pack: Pack) -> None:
    assert scanned(spool, pack(b"") * 100_000).width == 0


def test_a_broken_bz2_is_an_error_of_the_file(spool: Path) -> None:
    assert refused(spool, bz2.compress(b"") * 3).code == "broken_compression", "Arrow has an error of its own for it"


def test_a_zstd_window_larger_than_the_memory_is_refused(spool: Path) -> None:
    for exponent in (18, 20, 21):  # 256 MB, 1 GB, 2 GB
        frame = b"\x28\xb5\x2f\xfd" + bytes([0, exponent << 3]) + b"\x01\0\0"
        error = refused(spool, frame)
        assert error.code == "broken_compression" and "memory" in error.message


HUGE = 64 << 20
COSTLY = {
    "one line": (b"x" * HUGE, "record_too_long"),
    "a quote never closed": (b'a,b\n1,"' + b"x,y\n" * (HUGE // 4), "record_too_long"),
    "quotes only": (b'a,b\n"' + b'""' * (HUGE // 2), "record_too_long"),
    "a million columns": (b",".join(b"c%d" % number for number in range(1_000_000)) + b"\n", "too_many_columns"),
    "a name of many megabytes": (b"a" * (8 << 20) + b",b\n1,2\n", None),
    "a number of thousands of digits as a name": (b"1" * 6000 + b",b\n1,2\n", None),
    "blank lines": (b"\n" * HUGE, None),
}


@pytest.mark.parametrize("kind", COSTLY)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_what_is_made_to_cost_much_is_read_or_refused_in_little_memory(spool: Path, kind: str, pack: Pack) -> None:
    data, code = COSTLY[kind]
    packed = pack(data)
    generous = UnpackBudget(UnpackLimits(max_ratio=1_000_000))
    tracemalloc.start()
    try:
        if code is None:
            scanned(spool, packed, generous)
        else:
            assert refused(spool, packed, generous).code == code
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A record has at most 16 MB, of which there are a few copies, and the places of its quotes or names of its columns.
    assert peak < 384 << 20


def test_a_range_of_short_lines_has_no_more_rows_than_fit_into_memory(spool: Path) -> None:
    file = scanned(spool, b"n\n" + b"1\n" * (3 * MAX_RANGE_LINES))
    ends = [*(csv_range.line for csv_range in file.ranges[1:]), file.lines + 1]
    lengths = [end - csv_range.line for csv_range, end in zip(file.ranges, ends, strict=True)]
    assert sum(lengths) == 3 * MAX_RANGE_LINES and max(lengths) < 1.5 * MAX_RANGE_LINES


def test_a_load_that_explodes_fails_with_a_report_and_makes_no_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = place.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    upload = place.folder / "uploads" / "0f" / "orders.csv.gz"
    upload.parent.mkdir(parents=True)
    upload.write_bytes(gzip.compress(BOMB))
    params = {"table": "orders", "files": [str(upload)], "uploaded": True}
    job = submit_job(place.lake.registry, "csv", "main.orders", params, asked_by="someone")
    loads = CsvLoads(place.lake, InProcessTasks(), place.loads.make_table, place.sender, UnpackLimits(max_ratio=100))
    with pytest.raises(TooLarge) as caught:
        loads.run(job, lambda progress: None)
    assert caught.value.code == "file_explodes" and str(place.folder) not in str(caught.value.body())
    assert caught.value.message.startswith("orders.csv.gz ")
    with pytest.raises(NotFound):
        place.table()
    assert not list(temporary.iterdir()) and not upload.parent.exists()
    assert not list((place.folder / "warehouse").rglob("*.parquet"))


def test_reports_of_uploads_name_the_file_and_no_folder(place: Place) -> None:
    upload = place.folder / "uploads" / "0f" / "orders.csv"
    upload.parent.mkdir(parents=True)
    for _ in range(2):  # the second time it is known already
        upload.parent.mkdir(exist_ok=True)
        upload.write_text("n\n1\n")
        told = place.load(str(upload), uploaded=True)
        assert [file["name"] for file in told["files"]] == ["orders.csv"]
        assert str(place.folder) not in str(told)
