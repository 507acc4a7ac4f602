"""One id, one row: the index against the rule said naively, in every state that the index can be in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.events import CLOCK_SKEW_US, IS_NEW, IdWindow, Ints, Keys, id_keys, id_window
from frazil.events import id_window as ids

WINDOW_US = 1000
Event = tuple[int, int]
"""An id, as a small number, and the time of its receipt."""


def key_of(number: int) -> tuple[int, int]:
    """Sixteen ids share three first halves, and each second half stands under several first halves."""
    return number % 3, number // 3


def keys_of(events: list[Event]) -> Keys:
    return np.array([key_of(number) for number, _ in events], dtype=np.uint64).reshape(-1, 2)


def times_of(events: list[Event]) -> Ints:
    return np.array([received for _, received in events], dtype=np.int64)


class Naive:
    """The rule, event by event."""

    def __init__(self) -> None:
        self.counted: dict[int, tuple[int, int]] = {}
        self.position = 0

    def take(self, batch: list[Event]) -> list[int]:
        """The verdict that `IdWindow.judge` must give for the batch."""
        verdict, start = [], self.position
        for index, (number, received) in enumerate(batch):
            before = self.counted.get(number)
            if before is not None and received - before[1] < WINDOW_US:
                verdict.append(before[0] if before[0] < start else -2 - (before[0] - start))
            else:
                verdict.append(IS_NEW)
                self.counted[number] = (start + index, received)
        self.position += len(batch)
        return verdict


def take(window: IdWindow, batch: list[Event], start: int) -> list[int]:
    """Judge the batch and remember what counts, as a committer does."""
    keys, received = keys_of(batch), times_of(batch)
    assert window.covers(received)
    verdict = window.judge(keys, received)
    counts = verdict == IS_NEW
    window.add(keys[counts], (start + np.arange(len(batch)))[counts], received[counts])
    return [int(v) for v in verdict]


def make_window(folder: Path | None = None) -> IdWindow:
    return IdWindow(WINDOW_US / 1e6, spill_folder=folder)


batches = st.lists(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 5 * WINDOW_US)), max_size=12), min_size=1, max_size=12
)


@pytest.fixture(params=["in memory", "spilled"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path | None]:
    monkeypatch.setattr(id_window, "SPILL_ROWS", 3)
    monkeypatch.setattr(id_window, "_SMALL", 0)
    yield tmp_path if request.param == "spilled" else None
    assert list(tmp_path.iterdir()) == [], "spilled runs have no name and go with the process"


same_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_fixture
@given(batches)
def test_the_index_agrees_with_the_rule(folder: Path | None, stream: list[list[Event]]) -> None:
    """Times in any order: within the tolerance for clocks nothing is forgotten."""
    window, naive = make_window(folder), Naive()
    for batch in stream:
        start = naive.position
        assert take(window, batch, start) == naive.take(batch)


@same_fixture
@given(batches)
def test_ids_are_forgotten_and_never_needed_again(folder: Path | None, stream: list[list[Event]]) -> None:
    """Without any tolerance, and with a clock that runs: what is dropped is what no event can repeat."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "CLOCK_SKEW_US", 0)
        patch.setattr(ids, "_RECENT_BATCHES", 1)
        window, naive = make_window(folder), Naive()
        for number, batch in enumerate(stream):
            later = [(event, received % 300 + number * 700) for event, received in batch]
            start = naive.position
            if not window.covers(times_of(later)):
                window = rebuilt(naive, int(times_of(later).min()), folder)
            assert take(window, later, start) == naive.take(later)


def rebuilt(naive: Naive, oldest_us: int, folder: Path | None) -> IdWindow:
    """An index made anew from the rows that count, in no particular order, as from a scan of the table."""
    window = make_window(folder)
    window.complete_since_us = oldest_us - WINDOW_US
    for number, (position, received) in sorted(naive.counted.items(), key=lambda item: item[1][0] % 3):
        if received >= window.complete_since_us:
            window.add(keys_of([(number, 0)]), np.array([position]), np.array([received]))
    return window


@same_fixture
@given(batches, st.integers(0, 11))
def test_an_index_made_anew_gives_the_same_verdicts(folder: Path | None, stream: list[list[Event]], at: int) -> None:
    window, naive = make_window(folder), Naive()
    for number, batch in enumerate(stream):
        if number == at and batch:
            window = rebuilt(naive, 0, folder)
        start = naive.position
        assert take(window, batch, start) == naive.take(batch)


@given(batches, st.integers(1, 7))
def test_other_borders_of_the_batches_give_the_same_rows(stream: list[list[Event]], size: int) -> None:
    events = [event for batch in stream for event in batch]
    cut = [events[at : at + size] for at in range(0, len(events), size)]
    rows = []
    for borders in (stream, cut, [events]):
        window, start, kept = make_window(), 0, []
        for batch in borders:
            verdict = take(window, batch, start)
            kept += [start + index for index, v in enumerate(verdict) if v == IS_NEW]
            start += len(batch)
        rows.append(kept)
    assert rows[0] == rows[1] == rows[2]


def test_an_id_of_long_ago_is_dropped_and_the_index_says_so() -> None:
    window = make_window()
    take(window, [(1, 0), (2, 0)], 0)
    late = WINDOW_US + CLOCK_SKEW_US + 10
    for number in range(4 * id_window._RECENT_BATCHES):
        take(window, [(3 + number, late)], 2 + number)
    assert len(window) == 4 * id_window._RECENT_BATCHES, "the first two are gone"
    assert not window.covers(times_of([(1, 5)])), "an event this late could repeat one that is gone"
    assert window.covers(times_of([(1, late)]))


def test_a_clock_far_ahead_forgets_nothing_that_the_others_need() -> None:
    window = make_window()
    take(window, [(1, 0)], 0)
    take(window, [(2, 10**15)], 1)
    take(window, [(3, 5)], 2)
    assert window.covers(times_of([(1, 5)]))
    assert take(window, [(1, 5)], 3) == [0]


def test_an_index_filled_from_rows_answers_for_their_time_only() -> None:
    window = make_window()
    window.complete_since_us = 5000
    assert not window.covers(times_of([(1, 5000 + WINDOW_US - 1)]))
    assert window.covers(times_of([(1, 5000 + WINDOW_US)]))
    assert window.covers(times_of([]))


def test_the_border_of_the_window_belongs_to_the_next_row() -> None:
    window = make_window()
    assert take(window, [(1, 0), (1, WINDOW_US - 1), (1, WINDOW_US), (1, WINDOW_US + 1)], 0) == [IS_NEW, -2, IS_NEW, -4]
    assert take(window, [(1, 2 * WINDOW_US - 1), (1, 0)], 4) == [2, 2]


def test_a_verdict_names_what_is_repeated() -> None:
    window = make_window()
    take(window, [(7, 0), (8, 0)], 100)
    assert take(window, [(9, 1), (8, 1), (9, 2), (8, 2)], 200) == [IS_NEW, 101, -2, 101]


@pytest.mark.parametrize("spilled", [False, True])
def test_an_id_that_is_forgotten_counts_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spilled: bool
) -> None:
    if spilled:
        monkeypatch.setattr(id_window, "SPILL_ROWS", 1)
    window = IdWindow(10.0, spill_folder=tmp_path if spilled else None)
    keys, times = id_keys(pa.array(["a", "b"])), np.array([1, 1], dtype=np.int64)
    window.add(keys[:1], np.array([7], dtype=np.int64), times[:1])
    window.add(keys[1:], np.array([8], dtype=np.int64), times[1:])
    window.forget(np.array([7, 99], dtype=np.int64))
    assert window.judge(keys, times).tolist() == [IS_NEW, 8]
    window.add(keys[:1], np.array([9], dtype=np.int64), times[:1])
    assert window.judge(keys, times).tolist() == [9, 8]


def test_nothing_is_judged_and_added_without_harm() -> None:
    window = make_window()
    assert take(window, [], 0) == [] and len(window) == 0


def test_keys_are_of_the_text_alone() -> None:
    text = ["", "a", "ü", "a" * 1000]
    keys = id_keys(pa.array(text))
    chunked = id_keys(pa.chunked_array([["", "a"], ["ü", "a" * 1000]]))
    assert keys.shape == (4, 2) and (keys == chunked).all()
    assert len({tuple(key) for key in keys.tolist()}) == 4
    assert (id_keys(pa.array(text[::-1]))[::-1] == keys).all()
    assert id_keys(pa.array([], pa.string())).shape == (0, 2)


def test_a_million_ids(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints what it costs; asserts only that each id counts once."""
    number, size = 1_000_000, 10_000
    text = pa.array([f"event-{i:012d}" for i in range(number)])
    began = time.perf_counter()
    keys = id_keys(text)
    hashed = time.perf_counter()
    window = IdWindow(86_400)
    received = np.full(number, 10**15, dtype=np.int64)
    for at in range(0, number, size):
        part = slice(at, at + size)
        assert (window.judge(keys[part], received[part]) == IS_NEW).all()
        window.add(keys[part], np.arange(at, at + size), received[part])
    added = time.perf_counter()
    assert (window.judge(keys, received) == np.arange(number)).all()
    judged = time.perf_counter()
    single = id_keys(pa.array([f"single-{i}" for i in range(2000)]))
    began_single = time.perf_counter()
    for at in range(2000):
        one = single[at : at + 1]
        assert window.judge(one, received[:1])[0] == IS_NEW
        window.add(one, np.array([number + at]), received[:1])
    singles = time.perf_counter()
    with capsys.disabled():
        print(
            f"\n1M ids: hash {hashed - began:.2f} s; judge+add in batches of 10,000 {added - hashed:.2f} s; "
            f"judge all again {judged - added:.2f} s; judge+add of one id {(singles - began_single) * 500:.0f} µs"
        )
