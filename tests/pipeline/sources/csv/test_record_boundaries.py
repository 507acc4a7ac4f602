from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frazil.pipeline.sources.csv import record_boundaries as borders
from frazil.pipeline.sources.csv.dialect import Dialect
from frazil.pipeline.sources.csv.field_text import read_text
from frazil.pipeline.sources.csv.lexer import read_records
from frazil.pipeline.sources.csv.record_boundaries import count_lines, last_end, records
from frazil.pipeline.sources.csv.text_ranges import CsvRange, FileMark
from tests.pipeline.sources.csv import naive

DIALECTS = st.sampled_from(
    [Dialect(), Dialect(escape="\\"), Dialect(";", "'"), Dialect(quote=None), Dialect(quote=None, escape="\\")]
)
# Mostly the signs that mean something, so that every neighbourhood of two of them comes up.
NASTY = st.lists(st.sampled_from([b'"', b'""', b",", b";", b"'", b"\n", b"\r", b"\r\n", b"\\", b"a", b"\0"])).map(
    b"".join
)
QUOTED = st.lists(
    st.lists(st.sampled_from([b'"a"', b'"x\ny"', b'"q""q"', b'""', b"", b"b", b'5" pipe', b'"a"b']), min_size=1).map(
        b",".join
    )
).map(b"\n".join)


def range_of(folder: Path, data: bytes, line: int = 1, *, unclosed: bool = False) -> CsvRange:
    path = folder / "range.csv"
    path.write_bytes(data)
    return CsvRange(str(path), 0, len(data), line, FileMark.of(path.stat()), str(path), unclosed)


@pytest.mark.parametrize("part_bytes", [1, 7, 1 << 18])
@given(data=NASTY | QUOTED, dialect=DIALECTS)
@example(data=b'"a""', dialect=Dialect())
@example(data=b'a"\n"b\n"', dialect=Dialect())
@example(data=b'\\\r\n"x\n"', dialect=Dialect(escape="\\"))
@example(data=b'\\,"\n"', dialect=Dialect(escape="\\"))
def test_records_are_those_of_a_naive_reader(part_bytes: int, data: bytes, dialect: Dialect) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(borders, "_PART_BYTES", part_bytes)
        found = records(data, dialect, 5)
    expected, inside = naive.read(data, dialect, 5)
    assert found.starts.tolist() == [record.start for record in expected]
    assert found.ends.tolist() == [record.end for record in expected]
    assert found.lines.tolist() == [record.line for record in expected]
    assert found.open == inside


@given(data=NASTY | QUOTED, dialect=DIALECTS)
def test_the_last_end_is_that_of_the_last_terminated_record(data: bytes, dialect: Dialect) -> None:
    end = last_end(data, dialect)
    before, inside = naive.read(data[:end], dialect)
    after, _ = naive.read(data[end:], dialect)
    assert not inside
    assert end == 0 or data[end - 1 : end] in (b"\r", b"\n")
    # What is cut there reads like the whole, and nothing that ends is left behind.
    assert [record.fields for record in before + after] == [record.fields for record in naive.read(data, dialect)[0]]
    rest = data[end:]
    assert len(after) <= 1 and (not after or after[0].end == len(rest))


@given(data=NASTY)
def test_lines_are_counted_whatever_ends_them(data: bytes) -> None:
    assert count_lines(data) == len((data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"|").split(b"\n")) - 1


@given(data=NASTY | QUOTED, dialect=DIALECTS)
def test_the_reader_of_heads_reads_the_same_fields(data: bytes, dialect: Dialect) -> None:
    expected = [[value.decode() for value in record.fields] for record in naive.read(data, dialect)[0]]
    assert read_records(data, dialect) == expected


@given(data=NASTY | QUOTED, dialect=DIALECTS, width=st.integers(1, 3))
def test_arrow_reads_the_same_records_and_fields(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, dialect: Dialect, width: int
) -> None:
    expected, inside = naive.read(data, dialect)
    closed = expected[: len(expected) - inside]
    csv_range = range_of(tmp_path_factory.getbasetemp(), data, unclosed=inside)
    text = read_text(csv_range, dialect, width, range(width))
    fitting = [record for record in closed if len(record.fields) == width]
    assert text.lines().tolist() == [record.line for record in fitting]
    for position, column in enumerate(text.columns):
        assert column.to_pylist() == [
            record.fields[position].decode() if record.fields[position] or record.quoted[position] else None
            for record in fitting
        ]
    for record in text.misfits:
        assert text.raw(record).encode() == data[expected[record].start : expected[record].end]
    assert len(text.misfits) == len(expected) - len(fitting)


def test_a_record_longer_than_a_block_is_read(tmp_path: Path) -> None:
    data = b'1,"' + b"x\n" * 1_500_000 + b'"\n2,y\n'
    csv_range = range_of(tmp_path, data)
    columns = read_text(csv_range, Dialect(), 2, range(2)).columns
    assert columns[0].to_pylist() == ["1", "2"]
    assert len(columns[1][0].as_py()) == 3_000_000
    assert read_text(csv_range, Dialect(), 2, [0]).lines().tolist() == [1, 1_500_002]
