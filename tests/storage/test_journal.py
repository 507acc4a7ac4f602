"""The journal: shared by processes, cut off by kills, bounded in size."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.storage import AppendLog, Journal

_PROCESSES = 4
_ENTRIES = 200


def append_many(folder: Path, writer: int, **sizes: int) -> None:
    shared = Journal(folder, **sizes)
    for number in range(_ENTRIES):
        shared.append("commit", writer=writer, number=number, padding="x" * (number % 50))


def append_many_to_small_files(folder: Path, writer: int) -> None:
    append_many(folder, writer, max_file_bytes=4000, max_files=1000)


def append_until_killed(folder: Path) -> None:
    shared = Journal(folder)
    number = 0
    while True:
        shared.append("commit", number=number)
        number += 1


def test_the_newest_come_first(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "journal")
    for number in range(5):
        kept.append("commit", table="t", number=number)
    assert [entry["number"] for entry in kept.read(limit=3)] == [4, 3, 2]
    assert all(entry["kind"] == "commit" and entry["at"] for entry in kept.read())


def test_filters_compare_all_fields_and_a_none_does_not_filter(tmp_path: Path) -> None:
    kept = Journal(tmp_path)
    kept.append("commit", table="a", number=1)
    kept.append("failure", table="a", number=2)
    kept.append("commit", table="b", number=3)
    assert [entry["number"] for entry in kept.read(kind="commit", table="a")] == [1]
    assert [entry["number"] for entry in kept.read(kind="commit", table=None)] == [3, 1]
    assert kept.read(table="c") == [] and kept.read(missing=1) == []


def test_an_empty_journal_reads_as_nothing(tmp_path: Path) -> None:
    assert Journal(tmp_path).read() == []


def all_append(work: Callable[[Path, int], None], folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=work, args=(folder, writer)) for writer in range(_PROCESSES)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
        assert writer.exitcode == 0


def test_processes_share_a_journal_without_losing_or_mixing_entries(tmp_path: Path) -> None:
    all_append(append_many, tmp_path)
    entries = Journal(tmp_path).read(limit=10_000)
    assert len(entries) == _PROCESSES * _ENTRIES
    for writer_number in range(_PROCESSES):
        numbers = [entry["number"] for entry in entries if entry["writer"] == writer_number]
        assert numbers == list(reversed(range(_ENTRIES))), "each writer's entries are there once, in its order"


def test_processes_that_turn_files_over_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """There is room for all entries: none may be missing."""
    all_append(append_many_to_small_files, tmp_path)
    entries = Journal(tmp_path).read(limit=10_000)
    assert len({(entry["writer"], entry["number"]) for entry in entries}) == _PROCESSES * _ENTRIES
    assert len(list(tmp_path.glob("*.jsonl"))) > 5


def test_a_kill_leaves_a_journal_that_goes_on(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=append_until_killed, args=(tmp_path,))
    writer.start()
    for _ in range(3000):
        if Journal(tmp_path).read(limit=1):
            break
        writer.join(timeout=0.02)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(timeout=60)
    before = Journal(tmp_path).read(limit=1_000_000)
    assert [entry["number"] for entry in before] == list(reversed(range(len(before))))
    Journal(tmp_path).append("recovered")
    assert Journal(tmp_path).read(limit=1)[0]["kind"] == "recovered"


@pytest.mark.parametrize("torn", [b'{"kind":"comm', b'{"kind":"commit"', b"\x00\x00\x00", b'"text"', b"[1]"])
def test_a_torn_last_line_hides_nothing_but_itself(tmp_path: Path, torn: bytes) -> None:
    """A full disk or a power cut leaves half a line; the next entry must not be glued to it."""
    kept = Journal(tmp_path)
    kept.append("commit", number=1)
    (file,) = tmp_path.glob("*.jsonl")
    file.write_bytes(file.read_bytes() + torn)
    assert [entry["number"] for entry in kept.read()] == [1]
    kept.append("commit", number=2)
    kept.append("commit", number=3)
    assert [entry["number"] for entry in kept.read()] == [3, 2, 1]


def test_files_turn_over_and_the_oldest_go(tmp_path: Path) -> None:
    kept = Journal(tmp_path, max_file_bytes=300, max_files=3)
    for number in range(100):
        kept.append("commit", number=number)
    files = list(tmp_path.glob("*.jsonl"))
    assert len(files) == 3 and all(file.stat().st_size <= 300 for file in files)
    numbers = [entry["number"] for entry in kept.read(limit=1000)]
    assert numbers == list(range(99, 99 - len(numbers), -1)) and len(numbers) >= 6


def test_an_entry_larger_than_a_file_is_kept_whole(tmp_path: Path) -> None:
    kept = Journal(tmp_path, max_file_bytes=300)
    kept.append("failure", message="x" * 5000)
    kept.append("recovered")
    assert [entry["kind"] for entry in kept.read()] == ["recovered", "failure"]
    assert len(kept.read()[1]["message"]) == 5000


def test_a_reader_beside_a_writer_that_drops_files_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal(tmp_path)
    kept.append("commit", number=1)
    listed = AppendLog._all_files

    def listed_then_dropped(self: AppendLog) -> list[Path]:
        return [tmp_path / "00000000000000000000.jsonl", *listed(self)]

    monkeypatch.setattr(AppendLog, "_all_files", listed_then_dropped)
    assert [entry["number"] for entry in kept.read()] == [1]
