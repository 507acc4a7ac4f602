"""Id window, the event ids seen in the last hours: the rule of "one id, one row", and the index that makes it fast.

The rule is a pure function of the stream. Going through it in order, an event *counts* unless an event of the same id
counted before it and was received less than one window earlier. So a replay with other batch borders, another gateway
or a rebuilt index gives the same rows.

The index is derived: it can be rebuilt from the rows of the table and the tail of the bus. It holds 32 bytes an id (a
128-bit hash, the position, the time of receipt) in sorted runs that merge as they grow; large runs live in unlinked
files that the system pages in and out, so that a day of many events does not have to fit into memory.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

IS_NEW = -1
SPILL_ROWS = 4_000_000
# Gateways stamp the time of receipt; the index keeps this much more than the window, so that their clocks may differ.
CLOCK_SKEW_US = 3_600 * 1_000_000
_RECENT_BATCHES = 64
# Runs this small are merged at each add: sorting them costs less than one more run to look into.
_SMALL = 4096
_ALWAYS = np.iinfo(np.int64).min // 2
_HASHED_AT_ONCE = 65_536
_SECRET = os.urandom(32)


def id_keys(ids: pa.Array | pa.ChunkedArray) -> Keys:
    """A 128-bit hash of each id, as rows of two numbers that mean something in this process only.

    Four multilinear hashes of 32 bits, over the words of an id and its length, with secret random
    multipliers: two different ids agree in all four with a probability of 2^-128, even if a client chooses them to
    collide. It is arithmetic on whole columns, which takes a quarter of the time of a cryptographic hash per id.
    """
    texts = (ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids).cast(pa.string())
    hashes = [_hashes(texts.slice(at, _HASHED_AT_ONCE)) for at in range(0, len(texts), _HASHED_AT_ONCE)]
    return np.concatenate(hashes) if hashes else np.empty((0, 2), dtype=np.uint64)


def _hashes(texts: pa.Array) -> Keys:
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.uint64)
    words = -(-int(lengths.max()) // 4)
    padded = pc.ascii_rpad(texts, 4 * words, padding="\0")
    # Every text has the same length now, so each follows directly after the one before.
    start = int(np.frombuffer(padded.buffers()[1], dtype=np.int32)[padded.offset])
    text = np.frombuffer(padded.buffers()[2] or b"", dtype="<u4", count=words * len(texts), offset=start)
    bias, of_length, *of_words = _multipliers(words)
    sums = np.multiply.outer(lengths, of_length) + bias
    for multiplier, column in zip(of_words, text.reshape(len(texts), words).T, strict=True):
        sums += np.multiply.outer(column.astype(np.uint64), multiplier)
    hashes: Keys = (sums >> np.uint64(32)).astype("<u4").view("<u8")
    return hashes


@lru_cache(maxsize=64)
def _multipliers(words: int) -> Keys:
    """Rows of four random numbers: the bias, that of the length and one for each word, the same for every width."""
    return np.frombuffer(shake_256(_SECRET).digest(32 * (words + 2)), dtype="<u8").reshape(-1, 4)


@dataclass(frozen=True)
class _Run:
    """Entries sorted by the first half of the key."""

    high: Keys
    low: Keys
    position: Ints
    received: Ints

    def __len__(self) -> int:
        return len(self.high)

    def columns(self) -> tuple[npt.NDArray[np.generic], ...]:
        return self.high, self.low, self.position, self.received

    @classmethod
    def sorted(cls, columns: Sequence[npt.NDArray[np.generic]]) -> _Run:
        # A stable sort merges runs that are sorted already in linear time.
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))  # type: ignore[arg-type]

    def spilled(self, folder: Path) -> _Run:
        columns = []
        for column in self.columns():
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(column.tobytes())
                file.flush()
                columns.append(np.memmap(file, dtype=column.dtype, mode="r", shape=column.shape))
        return _Run(*columns)


class IdWindow:
    """The ids that count, of at least the last `window_seconds`. Not safe for several threads at once.

    What is "last" goes by the batches judged lately, not by the newest event: one clock that is far ahead must not make
    the index forget what the others still need. `covers` says whether it holds all that a batch can repeat; where it
    does not, the index must be rebuilt.
    """

    def __init__(self, window_seconds: float, *, spill_folder: Path | None = None) -> None:
        self.window_us = int(window_seconds * 1_000_000)
        self._spill_folder = spill_folder
        self._runs: list[_Run] = []
        self._forgotten: Ints = np.empty(0, dtype=np.int64)
        self._oldest_judged: deque[int] = deque(maxlen=_RECENT_BATCHES)
        self.complete_since_us = _ALWAYS
        """Every id that counts and was received at or after this time is held. Set after a fill from rows."""

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def covers(self, received_us: Ints) -> bool:
        """Whether every event is held that one received at these times could repeat."""
        return len(received_us) == 0 or int(received_us.min()) - self.window_us >= self.complete_since_us

    def judge(self, keys: Keys, received_us: Ints) -> Ints:
        """For each event in the stream's order: `IS_NEW`, or what it repeats.

        What it repeats is the position of the event that counted (0 or more), or, where that is in this very batch,
        its index i written as -2 - i.
        """
        verdict = np.full(len(keys), IS_NEW, dtype=np.int64)
        if len(keys):
            self._oldest_judged.append(int(received_us.min()))
        position, received = self._find(keys)
        seen = (position >= 0) & (received_us - received < self.window_us)
        verdict[seen] = position[seen]
        for indices in _repeats(keys):
            counted_at: int | None = int(received[indices[0]]) if position[indices[0]] >= 0 else None
            counted_as = int(position[indices[0]])
            for index in indices:
                now = int(received_us[index])
                if counted_at is not None and now - counted_at < self.window_us:
                    verdict[index] = counted_as
                else:
                    verdict[index] = IS_NEW
                    counted_at, counted_as = now, -2 - int(index)
        return verdict

    def add(self, keys: Keys, positions: Ints, received_us: Ints) -> None:
        """Remember events that count."""
        if len(keys) == 0:
            return
        self._runs.append(_Run.sorted((keys[:, 0], keys[:, 1], positions, received_us)))
        while len(self._runs) > 1 and len(self._runs[-2]) <= max(2 * len(self._runs[-1]), _SMALL):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(self._merged(older, newer))

    def forget(self, positions: Ints) -> None:
        """Let the ids at these positions count again: their events were taken out of the stream's account."""
        self._forgotten = np.union1d(self._forgotten, positions)

    def _merged(self, older: _Run, newer: _Run) -> _Run:
        columns = [np.concatenate(pair) for pair in zip(older.columns(), newer.columns(), strict=True)]
        horizon = min(self._oldest_judged, default=_ALWAYS) - self.window_us - CLOCK_SKEW_US
        kept = columns[3] >= horizon
        if not kept.all():
            columns = [column[kept] for column in columns]
            self.complete_since_us = max(self.complete_since_us, horizon)
        run = _Run.sorted(columns)
        return run.spilled(self._spill_folder) if self._spill_folder and len(run) > SPILL_ROWS else run

    def _find(self, keys: Keys) -> tuple[Ints, Ints]:
        """The newest entry of each key: its position (or -1) and time of receipt."""
        position = np.full(len(keys), -1, dtype=np.int64)
        received = np.zeros(len(keys), dtype=np.int64)
        if not self._runs:
            return position, received
        # In the order of the runs: neighbours are then looked up next to each other, five times as fast.
        order = np.argsort(keys[:, 0])
        high, low = keys[order, 0], keys[order, 1]
        for run in self._runs:
            at = np.searchsorted(run.high, high)
            open_ = np.flatnonzero(at < len(run))
            while len(open_):
                open_ = open_[run.high[at[open_]] == high[open_]]
                is_hit = (run.low[at[open_]] == low[open_]) & (run.position[at[open_]] > position[open_])
                if len(self._forgotten):
                    is_hit &= ~np.isin(run.position[at[open_]], self._forgotten)
                hit = open_[is_hit]
                position[hit] = run.position[at[hit]]
                received[hit] = run.received[at[hit]]
                at[open_] += 1
                open_ = open_[at[open_] < len(run)]
        in_batch = np.empty((2, len(keys)), dtype=np.int64)
        in_batch[:, order] = position, received
        return in_batch[0], in_batch[1]


def _repeats(keys: Keys) -> list[Ints]:
    """The indices, in order, of each key that is more than once in the batch."""
    if len(keys) < 2:
        return []
    high = np.sort(keys[:, 0])
    if not (high[1:] == high[:-1]).any():
        return []  # as it nearly always is; sorting numbers takes a tenth of ranking pairs
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    ranked = keys[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1)
    if not same.any():
        return []
    groups = np.split(order, np.flatnonzero(~same) + 1)
    return [np.sort(group) for group in groups if len(group) > 1]
