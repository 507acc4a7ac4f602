from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.events.declaration import NO_CHECKS, ColumnType, Partition, parse_type
from frazil.events.declaration.column_checks import parse_checks
from frazil.pipeline.sources.csv.convert import convert_column
from frazil.pipeline.sources.csv.dialect import Dialect
from frazil.pipeline.sources.csv.parse import CellRefusal, Parsed, TargetColumn, unique_values
from tests.pipeline.sources.csv import naive
from tests.pipeline.sources.csv.ranges import parse_range
from tests.pipeline.sources.csv.test_record_boundaries import NASTY, QUOTED, range_of


def column(name: str, text: str, position: int | None, **checks: Any) -> TargetColumn:
    of_type = parse_type(text)
    return TargetColumn(name, of_type, position, parse_checks(checks, name, of_type) if checks else NO_CHECKS)


def parsed(folder: Path, data: str, *columns: TargetColumn, width: int = 2, line: int = 1, **options: Any) -> Parsed:
    return parse_range(range_of(folder, data.encode(), line), Dialect(), width, columns, **options)


def test_rows_and_bad_rows_with_their_lines_and_texts(tmp_path: Path) -> None:
    data = 'x,1\n\n"multi\nline",2\nragged\nz,three\r\n"a ""b""",4,5\ny,6\n"open,7'
    found = parsed(tmp_path, data, column("name", "string", 0), column("n", "long", 1), line=2)
    assert found.rows.to_pylist() == [
        {"name": "x", "n": 1, "_line": 2},
        {"name": "multi\nline", "n": 2, "_line": 4},
        {"name": "y", "n": 6, "_line": 9},
    ]
    assert found.bad.to_pylist() == [
        {"line": 6, "column": None, "reason": "1 field instead of 2", "raw": "ragged"},
        {"line": 7, "column": "n", "reason": "'three' is not of type long", "raw": "z,three"},
        {"line": 8, "column": None, "reason": "3 fields instead of 2", "raw": '"a ""b""",4,5'},
        {"line": 10, "column": None, "reason": "the last quote of the file is never closed", "raw": '"open,7'},
    ]
    assert found.rows.schema.field("n").type == pa.int64()


@given(data=NASTY | QUOTED, width=st.integers(1, 3), kind=st.sampled_from(["long", "string", "date"]))
def test_every_record_comes_out_once(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, width: int, kind: str
) -> None:
    records, inside = naive.read(data, Dialect())
    csv_range = range_of(tmp_path_factory.getbasetemp(), data, unclosed=inside)
    found = parse_range(csv_range, Dialect(), width, [column("a", kind, 0), column("b", "string", width - 1)])
    lines = sorted(found.rows["_line"].to_pylist() + found.bad["line"].to_pylist())
    assert lines == [record.line for record in records]
    texts = {record.line: data[record.start : record.end].decode() for record in records}
    assert all(texts[bad["line"]] == bad["raw"] for bad in found.bad.to_pylist())


def test_empty_and_null(tmp_path: Path) -> None:
    columns = [column("s", "string", 0), column("n", "long", 1)]
    found = parsed(tmp_path, ',\n"",""\nNA,NA\n"NA",1\n', *columns, null_words=["NA"])
    assert found.bad.num_rows == 0
    assert found.rows.select(["s", "n"]).to_pylist() == [
        {"s": None, "n": None},
        {"s": "", "n": None},
        {"s": None, "n": None},
        {"s": "NA", "n": 1},
    ]
    assert parsed(tmp_path, "NA,NA\n", *columns).bad["column"].to_pylist() == ["n"]


def test_columns_in_any_order_and_ones_that_the_file_lacks(tmp_path: Path) -> None:
    columns = [
        column("b", "long", 1),
        column("new", "date", None),
        column("a", "string", 0),
        column("again", "string", 1),
    ]
    found = parsed(tmp_path, "x,1\n", *columns)
    assert found.rows.to_pylist() == [{"b": 1, "new": None, "a": "x", "again": "1", "_line": 1}]
    assert parsed(tmp_path, "x,1\ny\n", column("new", "date", None)).rows.to_pylist() == [{"new": None, "_line": 1}]
    missing = parsed(tmp_path, "x,1\n", column("new", "date", None, not_null=True))
    assert missing.bad["reason"].to_pylist() == ["the value is missing, and the column must not be null"]
    empty = parsed(tmp_path, "\n\n", *columns)
    assert (empty.rows.num_rows, empty.bad.num_rows) == (0, 0)
    assert empty.rows.schema == found.rows.schema


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("bool", {"true": True, "FALSE": False, "1": True, "0": False}, ["yes", "t", "2"]),
        ("int", {"007": 7, "+5": 5, " -1 ": -1, "2147483647": 2**31 - 1}, ["2147483648", "1.0", "0x1F", "1e3", "--1"]),
        ("long", {"-9223372036854775808": -(2**63)}, ["9223372036854775808", "0X1f", "1" * 50, "+"]),
        ("float", {"1.5": 1.5, "NaN": None}, ["1e39", "x"]),
        ("double", {"1e3": 1000.0, ".5": 0.5, "-inf": float("-inf"), " 2": 2.0}, ["1e400", "1,5", "1.2.3", "0x1p3"]),
        ("decimal(5,2)", {"1.5": Decimal("1.50"), "+1.230": Decimal("1.23"), "1e2": Decimal("100")}, ["1000", "1.234"]),
        (
            "date",
            {"2024-02-29": date(2024, 2, 29), "9999-12-31": date(9999, 12, 31)},
            ["2023-02-29", "0000-01-01", "x"],
        ),
        (
            "timestamp",
            {
                "2024-05-01": datetime(2024, 5, 1, tzinfo=UTC),
                "2024-05-01 12:00:00": datetime(2024, 5, 1, 12, tzinfo=UTC),
                "2024-05-01T12:00:00.5Z": datetime(2024, 5, 1, 12, 0, 0, 500000, tzinfo=UTC),
                "2024-05-01T12:00:00+02:00": datetime(2024, 5, 1, 10, tzinfo=UTC),
            },
            ["2024-02-30T00:00:00", "0001-01-01T00:00:00+01:00", "2024-05-01T12:00:00.1234567", "12:00"],
        ),
        ("json", {'{"a": 1.0}': '{"a":1.0}', "[]": "[]"}, ["{", "NaN", '{"a":1,"a":2}', "[" * 5000]),
        ("list<long>", {"[1, 2]": [1, 2], "null": None}, ['["x"]', "1"]),
        ("binary", {"aGk=": b"hi"}, ["a"]),
    ],
)
def test_what_fits_a_type_does_not_depend_on_its_neighbours(text: str, good: dict[str, Any], bad: list[str]) -> None:
    wanted = parse_type(text)
    assert text_values(list(good), wanted, ()) == list(good.values())
    for value, expected in good.items():
        assert text_values([value], wanted, ()) == [expected]
    mixed = [*good, None, "", " ", *bad]
    expected = [*good.values(), *([None] * (3 + len(bad)))]
    # Only what is plain text for JSON is bad there when blank.
    unfit = range(len(good) + 3, len(mixed))
    if text in ("json", "list<long>", "binary"):
        mixed.remove(" ")
        expected.pop()
        unfit = range(len(good) + 2, len(mixed))
    assert text_values(mixed, wanted, unfit) == expected
    for value in bad:
        assert text_values([value], wanted, [0]) == [None]


SHAPES = [
    r"[+-]?0{0,3}(?:214748364[78]|922337203685477580[78]|[0-9]{0,22})(?:\.[0-9]{0,4})?",
    r"[+-]?[0-9]{0,3}\.?[0-9]{0,3}(?:[eE][+-]?[0-9]{1,3})?",
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
    r"(?:0000|0001|9999|20[0-9]{2})-[01][0-9]-[0-3][0-9](?:[T ][0-2][0-9](?::?[0-6][0-9]){0,3})?",
    r"20[0-9]{2}-0[1-9]-[0-2][0-9][T ][0-1][0-9]:[0-5][0-9](?::[0-5][0-9])?(?:\.[0-9]{0,8})?",
    r"20[0-9]{2}-0[1-9]-[12][0-9][T ][0-1][0-9]:[0-5][0-9](?:Z|z|[+-][0-9]{2}(?::?[0-9]{2})?)?",
]
WORDS = ["true", "TRUE", "1", "0", "nan", "-Inf", "infinity", "inf", "0x1F", "", " ", " 5 ", "5\t", "+ 5"]
SHAPED = st.one_of(st.sampled_from(WORDS), *(st.from_regex(shape, fullmatch=True) for shape in SHAPES))


@given(
    texts=st.lists(SHAPED, min_size=1, max_size=5),
    text=st.sampled_from("bool int long float double decimal(5,2) decimal(38,0) date timestamp".split()),
)
def test_all_at_once_and_one_by_one_agree(texts: list[str], text: str) -> None:
    wanted = parse_type(text)
    column = pa.array(texts)
    together = convert_column(column, wanted)
    # A neighbour that does not fit anything sends the others the slow way.
    slowly = convert_column(pa.array([*texts, "?"]), wanted)
    assert slowly.unfit is not None
    alone = [convert_column(column[at : at + 1], wanted) for at in range(len(texts))]
    unfit = [found.unfit is not None for found in alone]
    assert ([False] * len(texts) if together.unfit is None else together.unfit.tolist()) == unfit
    assert slowly.unfit.tolist() == [*unfit, True]
    assert str(together.values) == str(slowly.values[:-1]) == str(pa.concat_arrays([found.values for found in alone]))


def text_values(texts: list[str | None], wanted: ColumnType, unfit: Any) -> list[Any]:
    converted = convert_column(pa.array(texts, pa.string()), wanted)
    assert converted.values.type == wanted.arrow
    found = [] if converted.unfit is None else [index for index, flag in enumerate(converted.unfit) if flag]
    assert found == list(unfit)
    return [None if value != value else value for value in converted.values.to_pylist()]


def test_checks_refuse_rows(tmp_path: Path) -> None:
    columns = [
        column("code", "string", 0, not_null=True, pattern="[A-Z]{2}|x"),
        column("n", "decimal(9,2)", 1, range={"min": 0, "max": "10.5"}),
        column("size", "string", 2, one_of=["S", "M"]),
        column("day", "date", 3, range={"min": "2024-01-01"}),
    ]
    data = 'AB,1,S,2024-01-01\n,1,S,\nABC,1,S,\nAB,-0.01,L,\nAB,10.51,S,\nAB,,XL,\nx,10.5,,2023-12-31\n"",1,S,\nx,,M,\n'
    found = parsed(tmp_path, data, *columns, width=4)
    assert found.rows["_line"].to_pylist() == [1, 9]
    assert [(bad["line"], bad["column"], bad["reason"]) for bad in found.bad.to_pylist()] == [
        (2, "code", "the value is missing, and the column must not be null"),
        (3, "code", "'ABC' does not match the pattern [A-Z]{2}|x"),
        (4, "n", "'-0.01' is below the minimum of 0"),
        (5, "n", "'10.51' is above the maximum of 10.5"),
        (6, "size", "'XL' is not one of the declared values"),
        (7, "day", "'2023-12-31' is below the minimum of 2024-01-01"),
        (8, "code", "the value does not match the pattern [A-Z]{2}|x"),
    ]
    nan = parsed(tmp_path, "nan,1\n1,2\n", column("x", "double", 0, range={"max": 5}))
    assert nan.bad["reason"].to_pylist() == ["'nan' is in no range"]


def test_values_that_must_be_unique_are_told_with_their_lines_and_refused_by_the_caller(tmp_path: Path) -> None:
    columns = [column("id", "long", 0, unique=True), column("name", "string", 1)]
    data = "1,a\n2,b\n,c\nx,d\n1,e\n"
    first = parsed(tmp_path, data, *columns)
    values = unique_values(first, columns)
    assert values["id"].to_pydict() == {"value": [1, 2, 1], "line": [1, 2, 5]}
    again = parsed(
        tmp_path,
        "1,a\n2,b\n,c\nx,d\n1,e\n",
        *columns,
        refused={5: CellRefusal("id", "1 is there twice"), 99: CellRefusal(None, "")},
    )
    assert again.rows["_line"].to_pylist() == [1, 2, 3]
    assert again.bad.to_pylist()[1] == {"line": 5, "column": "id", "reason": "1 is there twice", "raw": "1,e"}
    assert pickle.loads(pickle.dumps(columns)) == columns  # noqa: S301 - our own bytes


def test_many_bad_values_among_many_good_ones(tmp_path: Path) -> None:
    lines = [
        f"{row},{'2024-02-30' if row % 3 == 0 else 'n/a' if row % 3 == 1 else '2024-02-29'}" for row in range(3000)
    ]
    found = parsed(tmp_path, "\n".join(lines), column("n", "long", 0), column("day", "date", 1))
    assert found.rows["n"].to_pylist() == list(range(2, 3000, 3))
    assert found.bad["raw"].to_pylist() == [line for row, line in enumerate(lines) if row % 3 != 2]


def test_values_too_long_for_the_folder_of_a_partition_are_bad(tmp_path: Path) -> None:
    partition = (Partition("identity", "name"), Partition("day", "at"))
    name = TargetColumn("name", parse_type("string"), 0, NO_CHECKS, partition)
    at = TargetColumn("at", parse_type("date"), 1, NO_CHECKS, partition)
    found = parsed(tmp_path, f"{'x' * 250},2026-01-01\n{'x' * 251},2026-01-01\n,\n", name, at)
    assert found.rows["_line"].to_pylist() == [1, 3]
    (bad,) = found.bad.to_pylist()
    assert (bad["line"], bad["column"]) == (2, "name") and "too long for a partition" in bad["reason"]
