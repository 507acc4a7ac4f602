"""The small parts of `frazil ingest csv`: which files are meant, which columns are declared, and following a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.cli.load import ingest_csv
from frazil.errors import InvalidInput, Unavailable


def test_paths_patterns_and_folders_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.TSV", "c.csv.gz", ".hidden.csv", "notes.md", "[odd].csv"):
        (tmp_path / name).write_text("x")
    assert [Path(file).name for file in ingest_csv.expanded(["."])] == ["[odd].csv", "a.csv", "b.TSV", "c.csv.gz"]
    assert [Path(file).name for file in ingest_csv.expanded(["*.csv*", "a.csv"])] == ["[odd].csv", "a.csv", "c.csv.gz"]
    assert [Path(file).name for file in ingest_csv.expanded(["[odd].csv"])] == ["[odd].csv"]
    assert ingest_csv.expanded(["absent.csv"]) == [str(tmp_path / "absent.csv")], (
        "the server says what is wrong with it"
    )


def test_columns_and_checks_are_declared_together() -> None:
    declared = ingest_csv._columns(
        ["amount=decimal(10,2)", "id = long"], ['amount={"range": {"min": 0}}', 'amount={"not_null": true}']
    )
    assert declared == {
        "amount": {"type": "decimal(10,2)", "checks": {"range": {"min": 0}, "not_null": True}},
        "id": {"type": "long"},
    }
    for columns, checks in ((["amount"], []), ([], ["id={}"]), (["id=long"], ["id=notjson"])):
        with pytest.raises(InvalidInput):
            ingest_csv._columns(columns, checks)


def test_a_followed_folder_is_loaded_as_it_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[list[str]] = []
    # What is written between two looks: to which file, and how long it is then.
    moments = iter([("a.csv", 1), ("a.csv", 2), None, ("b.csv", 1), None, None, None, None])
    fails = [
        InvalidInput("a load that fails is told, and the others go on"),
        Unavailable("one that may pass by itself is tried again"),
    ]

    def sleep(seconds: float) -> None:
        try:
            written = next(moments)
        except StopIteration:
            raise KeyboardInterrupt from None
        if written is not None:
            (tmp_path / written[0]).write_text("x" * written[1])

    def load(files: list[str]) -> None:
        loaded.append([Path(file).name for file in files])
        if len(loaded) == 3:
            (tmp_path / "b.csv").write_text("written to while it is read")
        if fails:
            raise fails.pop(0)

    (tmp_path / "a.csv").write_text("half of")
    monkeypatch.setattr("frazil.cli.load.ingest_csv.time.sleep", sleep)
    ingest_csv._follow([str(tmp_path)], load)
    assert loaded == [["a.csv"], ["b.csv"], ["b.csv"], ["b.csv"]]
