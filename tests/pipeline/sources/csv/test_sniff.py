from __future__ import annotations

import pytest

from frazil.pipeline.sources.csv.dialect import CsvOptions, Dialect
from frazil.pipeline.sources.csv.sniff import looks_like_data, sniff_dialect


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_signs_are_found(delimiter: str, quote: str) -> None:
    rows = [
        ["id", "text"],
        ["1", f"{quote}a, b; c | d{quote}"],
        ["2", f"{quote}e\n, f{quote}"],
        ["3", f"{quote}{quote}"],
    ]
    head = "\n".join(delimiter.join(row) for row in rows)
    assert sniff_dialect(head.encode(), CsvOptions()) == Dialect(delimiter, quote)


@pytest.mark.parametrize(
    ("head", "delimiter"),
    [
        (b"a;b\n1,5;2,5\n3,5;4,5\n", ";"),
        (b"a;b;c\n1,5;2,5;3\n1;2;3\n", ";"),
        (b"when\tvalue, in EUR\n2024-01-01\t1,5\n", "\t"),
        (b"name\nanna\n", ","),
        (b"", ","),
        (b"a|b|c\n1|2|3\nragged\n4|5|6\n", "|"),
    ],
)
def test_the_delimiter_is_the_one_that_makes_records_alike(head: bytes, delimiter: str) -> None:
    assert sniff_dialect(head, CsvOptions()).delimiter == delimiter


def test_what_is_said_is_not_doubted() -> None:
    head = b"a;b\n1;2\n"
    assert sniff_dialect(head, CsvOptions(delimiter=":", quote="")) == Dialect(":", None)
    assert sniff_dialect(head, CsvOptions(escape="\\")) == Dialect(";", '"', "\\")
    assert sniff_dialect(b"it's;o'clock\n'n;m'\n", CsvOptions()).quote == '"'


@pytest.mark.parametrize(
    "cells", [["id", "name"], ["country", "2019", "2020"], ["", ""], ["a1", "1a"], ["x-1", "2nd"], ["true", "id"]]
)
def test_a_header_is_names(cells: list[str]) -> None:
    assert not looks_like_data(cells)


@pytest.mark.parametrize(
    "cell",
    ["1", "-5", "1.5", "1,5", "1e9", ".5", "12%", "2024-05-01", "2024-05-01T10:00:00Z", "1.5.2024", "2101", "007"],
)
def test_a_number_or_a_date_is_no_name(cell: str) -> None:
    assert looks_like_data(["name", cell])
