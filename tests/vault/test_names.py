"""Keys whose names are alike: by case, accents, Unicode's two forms or what is between words. None replaces another."""

from __future__ import annotations

import json
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frazil.errors import InvalidInput
from frazil.events.declaration import ColumnType, parse_type
from frazil.vault import VaultSync, front_matter, parse_columns
from frazil.vault.columns import NOTE_COLUMNS, keys_by_column, spelled
from frazil.vault.export import export_notes
from frazil.vault.note import parse
from frazil.vault.note_file import file_of
from tests.vault.log_tables import LogTables
from tests.vault.vaults import contents, write

COLUMNS = {"status": "string", "due_date": "string", "a_b": "string", "a__b": "string", "strasse": "string"}
TYPES: dict[str, ColumnType] = {name: parse_type(kind) for name, kind in COLUMNS.items()}
ALIKE = (
    *(
        "status",
        "STATUS",
        "Status",
        "ſtatus",
        "ＳＴＡＴＵＳ",
        "státus",
        "sta\u0301tus",
        " status ",
        "status_",
        "statús",
    ),
    *("due_date", "Due date", "due-date", "DUE DATE", "due  date", "Due\u00a0Date", "due.date"),
    *("a_b", "a__b", "A b", "A__B", "a b", "a-_b"),
    *("strasse", "Straße", "STRAẞE", "STRASSE", "Strasse"),
    *("ıs", "İs", "statüs日", "", "_", "日本"),
    *NOTE_COLUMNS,
    *("Title", "TAGS", "tag", "Tag", "Alias", "Created", "date", "Date", "modified", "_id", "_seq", "PATH", "Body"),
)
values = st.none() | st.integers() | st.sampled_from(["open", "2024-01-01", "x"]) | st.lists(st.just("t"), max_size=1)


def read(block: str) -> dict[str, Any]:
    return dict(parse("a.md", block.encode(), TYPES).further)


def test_a_row_whose_front_matter_has_the_name_of_a_column_in_capitals() -> None:
    raw, lost = file_of({"path": "a.md", "front_matter": '{"STATUS": "mine"}', "status": "open"}, TYPES)
    assert lost == [] and raw == b"---\nSTATUS: mine\nstatus: open\n---\n"
    note = parse("a.md", raw, TYPES)
    assert note.front_matter == {"STATUS": "mine", "status": "open"} and note.further["status"] == "open"


@pytest.mark.parametrize(
    ("given_", "column", "value"),
    [
        ("date", "created", "2024-01-01"), ("modified", "updated", "2024-01-01"),
        ("tag", "tags", ["x"]), ("alias", "aliases", "y"),
    ],
)  # fmt: skip
def test_a_key_that_is_a_second_name_stays_beside_the_column(given_: str, column: str, value: Any) -> None:
    made = parse(
        "a.md", front_matter.dump({column: ["z"] if column in ("tags", "aliases") else "2030-01-01"}).encode(), {}
    )
    raw, lost = file_of({"path": "a.md", "front_matter": {given_: value}, column: made.row("v")[column]}, {})
    note = parse("a.md", raw, {})
    assert lost == [] and note.row("v")[column] == made.row("v")[column]
    assert note.front_matter is not None and note.front_matter[given_] == value


def test_the_columns_own_name_counts_first_and_what_is_passed_over_is_told() -> None:
    note = parse("a.md", b"---\nSTATUS: a\nstatus: b\nStatus: b\nDue date: c\ndue-date: d\n---\n", TYPES)
    assert (note.further["status"], note.further["due_date"]) == ("b", "c")
    assert note.front_matter == {"STATUS": "a", "status": "b", "Status": "b", "Due date": "c", "due-date": "d"}
    assert note.warnings == (
        "its 'STATUS' is in front_matter only: 'status' fills the column status",
        "its 'due-date' is in front_matter only: 'Due date' fills the column due_date",
    )


def test_a_key_fills_one_column() -> None:
    assert read("---\na__b: 1\n---\n") == {**dict.fromkeys(COLUMNS), "a__b": "1"}
    assert read("---\na b: 1\n---\n") == {**dict.fromkeys(COLUMNS), "a_b": "1"}


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("Due date", "due_date"), ("STATUS", "status"), ("Straße", "strasse"), ("STRAẞE", "strasse"),
        ("na\u00efve", "naive"), ("nai\u0308ve", "naive"), ("İd", "id"), ("(Due)  date!", "due_date"),
    ],
)  # fmt: skip
def test_other_spellings_of_a_column(key: str, column: str) -> None:
    assert spelled(key) == column


@pytest.mark.parametrize(("key", "column"), [("tıtle", "title"), ("日status", "status"), ("Größe", "gr_e"), ("", "a")])
def test_names_that_are_other_words(key: str, column: str) -> None:
    assert keys_by_column([column], [key]) == {}


def test_both_forms_of_a_letter_fill_the_same_column(tmp_path: Path) -> None:
    key = "Prénom d’été"
    files = {f"{form}.md": f"---\n{unicodedata.normalize(form, key)}: x\n---\n".encode() for form in ("NFC", "NFD")}
    kinds = {"prenom_d_ete": parse_type("string")}
    assert [dict(parse("a.md", raw, kinds).further) for raw in files.values()] == [{"prenom_d_ete": "x"}] * 2


def test_a_column_is_declared_once() -> None:
    with pytest.raises(InvalidInput, match="given twice"):
        parse_columns(["status=string", "status = long"])


@given(
    st.dictionaries(st.sampled_from(ALIKE), values, max_size=6),
    st.fixed_dictionaries({column: st.none() | st.sampled_from(["open", "done", ""]) for column in COLUMNS}),
)
@example({"STATUS": "x"}, {**dict.fromkeys(COLUMNS), "status": "open"})
@example({"a__b": "x", "A b": "y"}, {**dict.fromkeys(COLUMNS), "a_b": "open"})
def test_nothing_is_lost_between_a_row_and_its_file(given_: dict[str, Any], columns: dict[str, Any]) -> None:
    """What a row says twice, and differently, under one and the same name is told; all else is in the file."""
    raw, lost = file_of({"path": "a.md", "front_matter": json.dumps(given_), **columns}, TYPES)
    note = parse("a.md", raw, TYPES)
    replaced = {key for key, value in given_.items() if (note.front_matter or {}).get(key) != value}
    said = {column for column, value in columns.items() if value is not None}
    assert replaced <= said & given_.keys()
    assert lost == (["front_matter"] if replaced else [])
    assert {column: note.further[column] for column in said} == {column: columns[column] for column in said}


@given(st.lists(st.tuples(st.sampled_from(ALIKE), values), max_size=8))
def test_files_with_names_that_are_alike_come_back_as_they_were(keys: list[tuple[str, Any]]) -> None:
    block = "---\n" + "".join(f"{json.dumps(key)}: {json.dumps(value)}\n" for key, value in keys) + "---\ntext"
    with tempfile.TemporaryDirectory() as folder:
        here, tables = Path(folder, "v"), LogTables(Path(folder), COLUMNS)
        write(here, {"a.md": block})
        assert VaultSync(here, "v", tables, further=TYPES).run().new == 1
        exported = export_notes(tables.rows("notes", "v"), Path(folder, "out"), "v", TYPES)
        assert (exported.refused, exported.inexact) == ([], [])
        assert contents(Path(folder, "out")) == contents(here)
