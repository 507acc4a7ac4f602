from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import Conflict, InvalidInput, NotFound, TooLarge
from frazil.pipeline.sources.csv.dialect import CsvOptions, Dialect
from frazil.pipeline.sources.csv.field_text import read_text
from frazil.pipeline.sources.csv.scan import CsvFile, scan_file
from tests.pipeline.sources.csv import naive
from tests.pipeline.sources.csv.ranges import parse_range
from tests.pipeline.sources.csv.test_record_boundaries import NASTY, QUOTED

TEXT = 'id,name\n1,"Zoë, the\nfirst"\n2,"say ""hi"""\n\n3,ß\n'
ROWS = [("1", "Zoë, the\nfirst"), ("2", 'say "hi"'), ("3", "ß")]
LINES = [2, 4, 6]


def scanned(folder: Path, data: bytes, options: CsvOptions | None = None, chunk_bytes: int = 1 << 19) -> CsvFile:
    path = folder / "file.csv"
    path.write_bytes(data)
    spool = folder / "spool"
    spool.mkdir(exist_ok=True)
    return scan_file(path, spool, options, chunk_bytes=chunk_bytes)


def rows_of(file: CsvFile) -> tuple[list[tuple[str | None, ...]], list[int]]:
    rows: list[tuple[str | None, ...]] = []
    lines: list[int] = []
    for csv_range in file.ranges:
        text = read_text(csv_range, file.dialect, file.width, range(file.width))
        rows += zip(*(column.to_pylist() for column in text.columns), strict=True)
        lines += text.lines().tolist()
    return rows, lines


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize("chunk_bytes", [1, 5, 1 << 19])
@pytest.mark.parametrize(
    ("encoded", "encoding"),
    [
        (TEXT.encode(), "utf-8"),
        (codecs.BOM_UTF8 + TEXT.encode(), "utf-8"),
        (TEXT.encode("utf-16"), "utf-16-le"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-16-be"),
        (TEXT.encode("utf-16-le"), "utf-16-le"),
        (TEXT.encode("utf-16-be"), "utf-16-be"),
        (TEXT.encode("utf-32"), "utf-32-le"),
        (TEXT.encode("latin-1"), "iso8859-1"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, zstd])
def test_every_encoding_and_compression_gives_the_same_rows(
    tmp_path: Path, encoded: bytes, encoding: str, pack: type[bytes], chunk_bytes: int
) -> None:
    raw = pack(encoded)
    file = scanned(tmp_path, raw, chunk_bytes=chunk_bytes)
    assert (file.encoding, file.header, file.lines) == (encoding, ("id", "name"), 6)
    assert rows_of(file) == (ROWS, LINES)
    assert file.sha256 == hashlib.sha256(raw).hexdigest()
    # Plain UTF-8 is read where it lies; anything else once from the spool folder.
    copied = encoding != "utf-8" or raw is not encoded
    assert len(list((tmp_path / "spool").iterdir())) == copied
    assert all((csv_range.path != file.path) == copied for csv_range in file.ranges)


def test_latin1_is_found_at_the_last_byte_of_a_file(tmp_path: Path) -> None:
    file = scanned(tmp_path, b"a,b\n" + b"1,2\n" * 300_000 + b"3,\xe9\n")
    assert file.encoding == "iso8859-1"
    assert rows_of(file)[0][-1] == ("3", "é")
    assert len(list((tmp_path / "spool").iterdir())) == 1


def test_a_given_encoding_is_obeyed_or_refused_with_the_line(tmp_path: Path) -> None:
    file = scanned(tmp_path, "a,b\n1,€\n".encode("cp1252"), CsvOptions(encoding="cp1252"))
    assert rows_of(file)[0] == [("1", "€")]
    with pytest.raises(InvalidInput, match="not utf-8: bytes near line 2") as refused:
        scanned(tmp_path, b"a,b\n1,\xe9\n", CsvOptions(encoding="utf8"), chunk_bytes=3)
    assert refused.value.code == "bad_encoding"
    with pytest.raises(InvalidInput, match="not utf-16"):
        scanned(tmp_path, b"a,b\n1,2\n3", CsvOptions(encoding="utf-16-le"))
    for name in ("klingon", "base64", "rot13"):
        with pytest.raises(InvalidInput, match="not an encoding"):
            scanned(tmp_path, b"a\n", CsvOptions(encoding=name))
    assert len(list((tmp_path / "spool").iterdir())) == 1


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, zstd])
def test_members_are_read_one_after_the_other_and_a_broken_one_is_an_error(tmp_path: Path, pack: type[bytes]) -> None:
    file = scanned(tmp_path, pack(b"a,b\n1,2\n") + pack(b"3,4\n"))
    assert rows_of(file)[0] == [("1", "2"), ("3", "4")]
    for damaged in (pack(random.randbytes(5000).hex().encode())[:-9], pack(b"a,b\n1,2\n") + b"rubbish"):
        with pytest.raises(InvalidInput) as refused:
            scanned(tmp_path, damaged)
        assert refused.value.code == "broken_compression"
    assert len(list((tmp_path / "spool").iterdir())) == 1


@given(
    body=NASTY | QUOTED,
    chunk_bytes=st.integers(1, 40),
    range_bytes=st.integers(1, 40),
    dialect=st.sampled_from([Dialect(), Dialect(escape="\\")]),
)
def test_ranges_are_whole_records_wherever_chunks_end(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, chunk_bytes: int, range_bytes: int, dialect: Dialect
) -> None:
    options = CsvOptions(",", '"', dialect.escape, header=False, encoding="utf-8", range_bytes=range_bytes)
    file = scanned(tmp_path_factory.getbasetemp(), body, options, chunk_bytes)
    expected, inside = naive.read(body, dialect)
    found = []
    for csv_range in file.ranges:
        part, _ = naive.read(csv_range.read(), dialect, csv_range.line)
        found += [(csv_range.offset + record.start, record.line, record.fields) for record in part]
    assert found == [(record.start, record.line, record.fields) for record in expected]
    assert file.width == (len(expected[0].fields) if expected else 0)
    assert any(csv_range.unclosed for csv_range in file.ranges) == inside
    ends = [csv_range.offset + csv_range.length for csv_range in file.ranges]
    assert ends[:-1] == [csv_range.offset for csv_range in file.ranges[1:]]
    assert not ends or ends[-1] == len(body)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_any_line_end_and_none_at_the_end(tmp_path: Path, end: str) -> None:
    file = scanned(tmp_path, end.join(["", "a,b", "1,2", "", "3,4"]).encode())
    assert (file.header, file.lines) == (("a", "b"), 5)
    assert rows_of(file) == ([("1", "2"), ("3", "4")], [3, 5])


def test_files_with_little_in_them(tmp_path: Path) -> None:
    for empty in (b"", codecs.BOM_UTF8, b"\n\r\n\n", gzip.compress(b"")):
        file = scanned(tmp_path, empty)
        assert (file.width, file.header, file.ranges) == (0, None, ())
    for only_header in (b"a,b", b"a,b\n", b"\n\na,b\r\n"):
        file = scanned(tmp_path, only_header)
        assert (file.width, file.header) == (2, ("a", "b"))
        assert rows_of(file)[0] == []
    one_column = scanned(tmp_path, b'name\nanna\n\n""\nbob')
    assert rows_of(one_column) == ([("anna",), ("",), ("bob",)], [2, 4, 5])
    nul = scanned(tmp_path, b"a,b\n\x00,2\n")
    assert rows_of(nul)[0] == [("\0", "2")]


def test_a_table_has_a_limit_of_columns(tmp_path: Path) -> None:
    header = ",".join(f"c{number}" for number in range(1000))
    assert scanned(tmp_path, header.encode() + b"\n").width == 1000
    with pytest.raises(TooLarge, match="more than 1,000 columns") as refused:
        scanned(tmp_path, header.encode() + b",one_more\n")
    assert refused.value.code == "too_many_columns"


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100, 1 << 19])
def test_a_record_may_be_as_long_as_the_limit_and_no_longer(tmp_path: Path, chunk_bytes: int) -> None:
    options = CsvOptions(max_record_bytes=100)
    assert rows_of(scanned(tmp_path, b"a\nx\n" + b"y" * 100 + b"\nz\n", options, chunk_bytes))[1] == [2, 3, 4]
    for long in (b"y" * 101 + b"\nz\n", b"y" * 101, b"y" * 5000, b'"' + b"y\n" * 60):
        with pytest.raises(TooLarge, match="begins on line 3 of") as refused:
            scanned(tmp_path, b"a\nx\n" + long, options, chunk_bytes)
        assert refused.value.code == "record_too_long"


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    file = scanned(tmp_path, b"a,b\n1,2\n3,4\n")
    (csv_range,) = file.ranges
    path = Path(file.path)
    status = path.stat()
    with path.open("r+b") as writer:
        writer.seek(4)
        writer.write(b"9")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    for work in (
        csv_range.read,
        lambda: parse_range(csv_range, file.dialect, 2, []),
    ):
        with pytest.raises(Conflict) as refused:
            work()
        assert refused.value.code == "file_changed"
    # The same bytes under the same name in another file, with the old time: still another file.
    copy = tmp_path / "copy"
    copy.write_bytes(b"a,b\n1,2\n3,4\n")
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    copy.replace(path)
    with pytest.raises(Conflict):
        csv_range.read()
    path.unlink()
    with pytest.raises(Conflict):
        csv_range.read()


def test_what_is_no_file_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        scan_file(tmp_path / "absent.csv", tmp_path)
    with pytest.raises(InvalidInput, match="not a regular file"):
        scan_file(tmp_path, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="not a regular file"):
        scan_file(tmp_path / "pipe", tmp_path)


def test_options_that_cannot_be_are_refused() -> None:
    for delimiter, quote in (("ab", None), ("é", None), (None, "\n"), (",", ",")):
        with pytest.raises(InvalidInput) as refused:
            CsvOptions(delimiter, quote)
        assert refused.value.code == "bad_csv_option"


def test_what_a_scan_finds_can_be_sent_to_a_task(tmp_path: Path) -> None:
    file = scanned(tmp_path, TEXT.encode())
    assert pickle.loads(pickle.dumps(file)) == file  # noqa: S301 - our own bytes


_MEASURED = """
import re, sys
from pathlib import Path
from frazil.pipeline.sources.csv.dialect import CsvOptions
from frazil.pipeline.sources.csv.scan import scan_file
scan_file(Path(sys.argv[1]), Path(sys.argv[2]), CsvOptions(quote=""))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
"""The most memory since this program began; `ru_maxrss` would begin with that of the process which started it."""


@pytest.mark.slow
@pytest.mark.parametrize("record", [b"1,2,three\n", b"x" * (15 << 20) + b",y\n"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, record: bytes) -> None:
    peaks = []
    for megabytes in (32, 640):
        path = tmp_path / "large.csv"
        block = record * max(1, (32 << 20) // len(record))
        with path.open("wb") as file:
            for _ in range(megabytes // 32):
                file.write(block)
        command = [sys.executable, "-c", _MEASURED, str(path), str(tmp_path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] + 20_000
