"""Append log: kills at every step, rotation, full disks and clocks that step back."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from frazil.storage import AppendLog
from tests.kills import finished, killed_at

KINDS: dict[str, dict[str, Any]] = {
    "as the journal": {"max_file_bytes": 100, "max_files": 3},
    "as the audit log": {"max_file_bytes": 100, "daily": True, "keep_open": True},
}
of_each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def append_numbers(folder: Path, kind: dict[str, Any], numbers: range, durable: bool = False) -> None:
    log = AppendLog(folder, **kind)
    for number in numbers:
        log.append({"number": number, "padding": "x" * 20}, durable=durable)
    log.close()


def numbers_in(folder: Path, kind: dict[str, Any]) -> list[int]:
    """The numbers, oldest first."""
    return [entry["number"] for entry in AppendLog(folder, **kind).newest_first()][::-1]


@of_each_kind
@pytest.mark.parametrize("nth", range(1, 10))
@pytest.mark.parametrize("point", ["log_file_opened", "log_entry_written"])
def test_a_kill_while_entries_are_written(tmp_path: Path, kind: dict[str, Any], point: str, nth: int) -> None:
    """Two entries fill a file: the third, the fifth and so on open the full one and then the next."""
    opened_for = [0, 1, 2, 2, 3, 4, 4, 5, 6]
    whole = nth if point == "log_entry_written" else opened_for[nth - 1]
    kind = {**kind, "max_files": None}
    killed_at(f"{point}:{nth}", append_numbers, tmp_path, {**kind, "keep_open": False}, range(20), True)
    before = numbers_in(tmp_path, kind)
    assert before == list(range(whole)), "all that were acknowledged"
    finished(append_numbers, tmp_path, kind, range(len(before), 20))
    assert numbers_in(tmp_path, kind) == list(range(20))
    assert all(0 < path.stat().st_size <= 100 for path in tmp_path.iterdir()), "what the kill began was used"


@pytest.mark.parametrize("nth", range(1, 4))
def test_a_kill_while_old_files_are_removed(tmp_path: Path, nth: int) -> None:
    kind = KINDS["as the journal"]
    append_numbers(tmp_path, {**kind, "max_files": None}, range(12))
    assert len(list(tmp_path.iterdir())) == 6
    killed_at(f"log_file_removed:{nth}", append_numbers, tmp_path, kind, range(12, 13))
    assert numbers_in(tmp_path, kind) == list(range(2 * nth, 12)), "the newest are there, in their order"
    append_numbers(tmp_path, kind, range(12, 14))
    assert numbers_in(tmp_path, kind) == list(range(8, 14))
    assert len(list(tmp_path.iterdir())) == 3


@of_each_kind
@pytest.mark.parametrize("length", range(0, 47, 5))
def test_an_entry_that_a_kill_has_torn(tmp_path: Path, kind: dict[str, Any], length: int) -> None:
    append_numbers(tmp_path, kind, range(1))
    (file,) = tmp_path.iterdir()
    line = file.read_bytes()
    assert len(line) == 47
    with file.open("ab") as torn:
        torn.write(line[:length])
    append_numbers(tmp_path, kind, range(1, 6))
    assert [number for number in numbers_in(tmp_path, kind) if number] == list(range(1, 6))


@of_each_kind
def test_an_empty_file_takes_an_entry_of_any_size(tmp_path: Path, kind: dict[str, Any]) -> None:
    log = AppendLog(tmp_path, **kind)
    log.create_file()
    log.create_file()
    log.append({"number": 1, "padding": "x" * 500})
    log.append({"number": 2})
    assert numbers_in(tmp_path, kind) == [1, 2]
    assert len(list(tmp_path.iterdir())) == 2


def append_within(folder: Path, kind: dict[str, Any], most_bytes: int) -> None:
    """As on a disk that has room for so many bytes of a file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    with pytest.raises(OSError, match=r"only partly written|too large"):
        append_numbers(folder, kind, range(3))
    with pytest.raises(OSError, match="too large"):
        append_numbers(folder, kind, range(3, 4))


@of_each_kind
@pytest.mark.parametrize("room", [47, 48, 60, 92])
def test_a_full_disk_is_an_error_and_costs_no_entry(tmp_path: Path, kind: dict[str, Any], room: int) -> None:
    kind = {**kind, "max_file_bytes": 1000}
    finished(append_within, tmp_path, kind, room)
    assert numbers_in(tmp_path, kind) == [0]
    append_numbers(tmp_path, kind, range(4, 8))
    assert numbers_in(tmp_path, kind) == [0, 4, 5, 6, 7]


def test_a_clock_that_steps_back_makes_no_file_per_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS["as the journal"]
    append_numbers(tmp_path, kind, range(2))
    earlier = time.time_ns() - 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: earlier)
    append_numbers(tmp_path, kind, range(2, 6))
    assert numbers_in(tmp_path, kind) == list(range(6))
    assert len(list(tmp_path.iterdir())) == 3


def test_one_file_may_be_all_there_is(tmp_path: Path) -> None:
    append_numbers(tmp_path, {"max_file_bytes": 100, "max_files": 1}, range(5))
    assert numbers_in(tmp_path, KINDS["as the journal"]) == [4]


@of_each_kind
def test_files_of_others_are_not_written_to(tmp_path: Path, kind: dict[str, Any]) -> None:
    other = tmp_path / "9999-notes.jsonl"
    other.write_text('{"number": -1}\n')
    append_numbers(tmp_path, kind, range(9))
    assert other.read_text() == '{"number": -1}\n'
    assert numbers_in(tmp_path, kind)[-1] == -1 and 8 in numbers_in(tmp_path, kind)


def test_more_files_in_a_day_than_the_names_are_wide(tmp_path: Path) -> None:
    kind = KINDS["as the audit log"]
    log = AppendLog(tmp_path, **kind)
    log.create_file()
    (first,) = tmp_path.iterdir()
    first.rename(first.with_name(first.name.replace("0000.jsonl", "9999.jsonl")))
    for number in range(6):
        log.append({"number": number, "padding": "x" * 20})
    names = {path.stem.rpartition("-")[2] for path in tmp_path.iterdir()}
    assert names == {"9999", "10000", "10001"}
    assert sorted(numbers_in(tmp_path, kind)) == list(range(6))


def test_files_are_for_their_owner(tmp_path: Path) -> None:
    append_numbers(tmp_path / "log", KINDS["as the journal"], range(1))
    modes = [os.stat(path).st_mode & 0o777 for path in (tmp_path / "log", *(tmp_path / "log").iterdir())]
    assert modes == [0o700, 0o600]
