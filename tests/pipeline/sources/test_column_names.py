from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.events.declaration import NAME
from frazil.pipeline.sources.column_names import clean, clean_names, numbered


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("id", "id"),
        ("Größe (cm)", "grosse_cm"),
        ("  First Name ", "first_name"),
        ("Œuvre №5", "oeuvre_no5"),
        ("İstanbul", "istanbul"),
        ("2024", "c_2024"),
        ("_seq", "seq"),
        ("__", "column_7"),
        ("", "column_7"),
        ("日本", "column_7"),
        ("a" * 100, "a" * 63),
        ("trailing_", "trailing_"),
        ("Trailing_", "trailing"),
        ("ｆｕｌｌ", "full"),
    ],
)
def test_names(written: str, name: str) -> None:
    assert clean(written, 7) == name


def test_equal_names_are_counted_and_take_nobody_elses() -> None:
    assert clean_names(["id", "ID", "id_2", " id ", ""]) == ("id", "id_3", "id_2", "id_4", "column_5")
    long = "x" * 70
    assert clean_names([long, long]) == ("x" * 63, "x" * 61 + "_2")
    assert numbered(2) == ("column_1", "column_2")


@given(
    st.lists(st.text() | st.sampled_from(["id", "ID", "id_2", "id_3", "", "column_2", "é", "_id", "x" * 63, "x" * 64]))
)
def test_clean_names_are_names_of_columns_and_stay_as_they_are(header: list[str]) -> None:
    names = clean_names(header)
    assert all(NAME.match(name) for name in names)
    assert len(set(names)) == len(header)
    assert clean_names(names) == names
    assert clean_names(header) == names
    for name in header:
        assert clean(clean(name, 3), 3) == clean(name, 3)
