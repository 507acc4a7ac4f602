"""Files to rows to files give the same bytes; rows to files to rows give the same rows."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from frazil.events.declaration import ColumnType, parse_type
from frazil.vault import VaultSync
from frazil.vault.columns import spelled
from frazil.vault.export import export_notes
from frazil.vault.files import MAX_NOTE_BYTES
from frazil.vault.note import ALIASES_KEYS, CREATED_KEYS, TAGS_KEYS, UPDATED_KEYS, parse
from frazil.vault.note_file import file_of
from tests.vault.log_tables import LogTables
from tests.vault.vaults import contents, paths, vaults, write

FURTHER = {"status": "string", "price": "decimal(12,2)", "due_date": "date", "seen": "timestamp", "more": "json"}
TYPES: dict[str, ColumnType] = {name: parse_type(kind) for name, kind in FURTHER.items()}


@settings(max_examples=150)
@given(vaults)
@example({"a.md": b"", "b/c.md": b"\xef\xbb\xbf---\r\nstatus: 1\r\n---", "d.md": b"---\nprice: 1.5\n---\n\r\n"})
@example({"a.md": b"---\n---\n---\nx: 1\n---\nbody", "b.md": b"\xef\xbb\xbf\xef\xbb\xbf# x", "c.md": b"no end\r"})
def test_files_come_back_with_the_same_bytes(vault: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here, there, tables = Path(folder, "v"), Path(folder, "out"), LogTables(Path(folder), FURTHER)
        here.mkdir()
        write(here, vault)
        report = VaultSync(here, "v", tables, further=TYPES).run()
        assert report.skipped == () and report.new == report.files == len(vault)
        exported = export_notes(tables.rows("notes", "v"), there, "v", TYPES)
        assert exported.refused == [] and exported.inexact == []
        assert contents(there) == vault
        again = VaultSync(there, "v", tables, further=TYPES).run()
        assert again.published == 0 and again.unchanged == len(vault)


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_words = _texts.map(str.strip).filter(bool)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts
    | st.sampled_from(
        ["0o17", "007", "yes", "1_000", "12:30", "2024-01-01", "~", "null", "1e5", "---", "a\n---\nb", "="]
    )
)
_json = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3), max_leaves=8
)
_TAKEN = {"title", *ALIASES_KEYS, *CREATED_KEYS, *TAGS_KEYS, *UPDATED_KEYS, *FURTHER}
_own_keys = _texts.filter(lambda key: key not in _TAKEN) | st.sampled_from(
    ["STATUS", "Due date", "PRICE", "Seen", "MORE"]
)
_moments = st.datetimes(timezones=st.just(UTC), min_value=datetime(1000, 1, 1))
made_rows = st.fixed_dictionaries(
    {
        "path": paths,
        "body": st.none() | _texts | st.sampled_from(["---\nx: 1\n---\ny", "\ufeff# t", "# One\n#two [[three]]\r\n"]),
        "title": st.none() | _words,
        "front_matter": st.none() | st.dictionaries(_own_keys, _json, max_size=4),
        "tags": st.none() | st.lists(_words.filter(lambda tag: not tag.startswith("#")), unique=True, max_size=3),
        "aliases": st.none() | st.lists(_words, unique=True, max_size=3),
        "created": st.none() | _moments,
        "updated": st.none() | _moments,
        "has_bom": st.none() | st.booleans(),
        "status": st.none() | _texts,
        "price": st.none() | st.decimals("-1000", "1000", places=2),
        "due_date": st.none() | st.dates(),
        "seen": st.none() | _moments,
        "more": st.none() | st.dictionaries(_texts, st.integers() | _texts, max_size=2).map(json.dumps),
    }
)


@settings(max_examples=300)
@given(made_rows)
def test_rows_of_other_producers_are_read_back_as_they_were(row: dict[str, Any]) -> None:
    stored = dict(row)
    if row["front_matter"] is not None:
        stored["front_matter"] = json.dumps(row["front_matter"])
    if row["more"] is not None:
        stored["more"] = json.dumps(json.loads(row["more"]), separators=(",", ":"), ensure_ascii=False)
    raw, lost = file_of(stored, TYPES)
    assert lost == []
    note = parse(row["path"], raw, TYPES)
    alike = [key for key in row["front_matter"] or {} if spelled(key) in FURTHER]
    assert all(any(warning.startswith(f"its {key!r} ") for key in alike) for warning in note.warnings)
    assert note.body == (row["body"] or "") and note.has_bom == bool(row["has_bom"])
    for column in ("title", "created", "updated", "status"):
        if row[column] is not None:
            assert note.row("v")[column] == row[column]
    assert set(note.tags) == {*(row["tags"] or ()), *note.contents.tags}
    assert list(note.aliases) == (row["aliases"] or [])
    read = note.front_matter or {}
    assert {key: read[key] for key in row["front_matter"] or {}} == (row["front_matter"] or {})
    # From here on the row has a file, and the file stays as it is.
    again = {**note.row("v"), **{name: stored[name] for name in TYPES}}
    assert file_of(again, TYPES) == (raw, [])


def test_a_row_that_was_changed_by_another_producer_says_so_in_its_file() -> None:
    row = parse("a.md", b"---\nstatus: open\nx: [1]\n---\n# A\n", TYPES).row("v")
    raw, lost = file_of({**row, "status": "done", "body": "# B\n", "title": "Mine", "tags": ["new"]}, TYPES)
    note = parse("a.md", raw, TYPES)
    assert (note.title, note.body, note.tags, note.further["status"]) == ("Mine", "# B\n", ("new",), "done")
    assert note.front_matter is not None and note.front_matter["x"] == [1]
    assert lost == ["front_matter"], "it said open, and the column says done"


def test_what_no_file_can_say_is_told() -> None:
    raw, lost = file_of({"path": "a.md", "body": "x", "tags": ["#hash"], "front_matter": "[1]"}, {})
    assert set(lost) == {"tags", "front_matter"}
    assert len(raw) < MAX_NOTE_BYTES
