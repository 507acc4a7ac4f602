"""Run of trials, one after the other, each in child processes, journalled in batches.

Whoever continues a run that was killed reads what it journalled, and tries the rest. The run ends when all was tried
or its time is over; the report has the number of those left.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from frazil.crash import crash_point
from frazil.errors import FrazilError
from frazil.registry import ProgressCallback
from frazil.requests import TrialRequest
from frazil.serving.child_tasks import ChildTasks, TookTooLong
from frazil.serving.trials.dataset import Dataset
from frazil.serving.trials.eval_set import EvalSet, PreparedEvalSet, hit_rate, mean_reciprocal_rank, ranks
from frazil.serving.trials.grid import ALL_KINDS, VSS, TrialConfig, default_grid, drawn, near, parse_grid
from frazil.serving.trials.host import engines, machine
from frazil.serving.trials.measure import Build, Built, MeasuredSearch, Searched
from frazil.serving.trials.rule import Rule, leading
from frazil.serving.trials.vss import vss_missing
from frazil.serving.vectors.config import IndexConfig, default_config

BATCH_TRIALS = 8
BATCH_SECONDS = 60.0
Row = dict[str, Any]


@dataclass
class Run:
    """The trials of one job. `journal` adds some in one commit."""

    id: str
    request: TrialRequest
    dataset: Dataset
    eval_set: EvalSet
    prepared: PreparedEvalSet
    tasks: ChildTasks
    journal: Callable[[list[Row]], None]
    known: list[Row]
    """What an earlier try of the same job journalled."""
    deadline: float
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        self.rows: list[Row] = list(self.known)
        self.left = 0
        self._kinds = self.request.kinds or ALL_KINDS
        self._waiting: list[Row] = []
        self._journalled_at = time.monotonic()
        self._built: dict[str, tuple[Path, Built]] = {}

    def all(self, report_progress: ProgressCallback) -> None:
        """Try everything there is time for."""
        wanted = self.request.search or len(self._grid())
        for config in self._planned():
            if time.monotonic() >= self.deadline:
                self.left = wanted - len(self.rows)
                break
            report_progress({"tried": len(self.rows), "of": wanted})
            self._add(self._trial(config))
            if len(self._waiting) >= BATCH_TRIALS or time.monotonic() - self._journalled_at >= BATCH_SECONDS:
                self._flush()
        self._flush()

    def _grid(self) -> list[TrialConfig]:
        if self.request.grid is not None:
            return parse_grid(self.request.grid)
        return default_grid(len(self.dataset), self.dataset.dims, self._kinds)

    def _planned(self) -> Iterator[TrialConfig]:
        """What is not journalled yet: of the grid, those that share a build together; or one by one, each drawn with a
        look at what came before."""
        tried = [TrialConfig.parse(msgspec.json.decode(row["config"])) for row in self.known]
        if not self.request.search:
            grid = self._grid()
            first = {config.built_with: at for at, config in reversed(list(enumerate(grid)))}
            yield from sorted((one for one in grid if one not in tried), key=lambda one: first[one.built_with])
            return
        while len(tried) < self.request.search:
            config = self._drawn(len(tried), tried)
            if config is None:
                return
            tried.append(config)
            yield config

    def _drawn(self, number: int, tried: Sequence[TrialConfig]) -> TrialConfig | None:
        """The default first, then at random, and from half way on near the best."""
        default = TrialConfig.of(self._default())
        if number == 0 and default.kind in self._kinds:
            return default
        config = None
        won = leading([row for row in self.rows if row["state"] == "ok"], Rule.parse(self.request.rule))
        if won is not None and number >= self.request.search // 2:
            config = near(self.request.seed, number, TrialConfig.parse(msgspec.json.decode(won["config"])), tried)
        return config or drawn(self.request.seed, number, self._kinds, tried)

    def _default(self) -> IndexConfig:
        return default_config(len(self.dataset), self.dataset.dims)

    def _trial(self, config: TrialConfig) -> Row:
        row: Row = {
            **self.dataset.body(),
            "run": self.id,
            "trial": self._id(config),
            "tried_at": datetime.now(UTC),
            "purpose": "index",
            "state": "ok",
            "kind": config.kind,
            "config": config.text(),
            "is_default": config == TrialConfig.of(self._default()),
            "queries": len(self.prepared.kept),
            "asked": self.eval_set.asked,
            "eval_set": self.eval_set.id,
            "k": self.request.k,
            "threads": self.threads,
            "machine": machine(),
            "engines": engines(),
        }
        if config.kind == VSS and (missing := vss_missing()) is not None:
            return {**row, "state": "skipped", "reason": missing}
        try:
            built_in, built = self._build(config)
            if built.config.kind != config.kind:
                return {**row, "state": "skipped", "reason": f"so few vectors are always {built.config.kind}"}
            return {**row, **_figures(built, self._search(built_in, config))}
        except TookTooLong as error:
            return {**row, "state": "too_long", "reason": error.message}
        except FrazilError as error:
            return {**row, "state": "failed", "reason": f"{error.code}: {error.message}"[:500]}

    def _build(self, config: TrialConfig) -> tuple[Path, Built]:
        """Once for all that differ only in how they are searched; only the last build is kept on the disk."""
        if config.built_with not in self._built:
            for folder, _ in self._built.values():
                shutil.rmtree(folder, ignore_errors=True)
            self._built.clear()
            folder = self.dataset.folder / f"index-{self._id(config)}"
            shutil.rmtree(folder, ignore_errors=True)
            task = Build(self.dataset.folder, folder, config, self.threads)
            self._built[config.built_with] = folder, self.tasks.run(task, timeout_seconds=self._patience())
        return self._built[config.built_with]

    def _search(self, built_in: Path, config: TrialConfig) -> tuple[Searched, Mapping[str, Any]]:
        found = self.tasks.run(
            MeasuredSearch(self.dataset.folder, built_in, config, self.request.k), timeout_seconds=self._patience()
        )
        expected = [self.eval_set.questions[number].expected for number in self.prepared.kept]
        places = ranks(found.found, self.dataset.documents, expected)
        return found, {"hit_rate": hit_rate(places), "mrr": mean_reciprocal_rank(places)}

    def _patience(self) -> float:
        return min(self.request.trial_seconds, max(1.0, self.deadline - time.monotonic()))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._waiting.append(row)
        crash_point("after_trial")

    def _flush(self) -> None:
        self.journal(self._waiting)
        self._waiting = []
        self._journalled_at = time.monotonic()

    def _id(self, config: TrialConfig) -> str:
        return blake2b(f"{self.id} {config.text()}".encode(), digest_size=8).hexdigest()


def _figures(built: Built, searched: tuple[Searched, Mapping[str, Any]]) -> Row:
    found, hits = searched
    return {
        "recall": found.recall,
        "p50_ms": round(found.p50_ms, 4),
        "p99_ms": round(found.p99_ms, 4),
        "searches": found.searches,
        "build_seconds": round(built.seconds, 4),
        "size_bytes": built.size_bytes,
        "index_bytes": built.index_bytes,
        "memory_bytes": max(0, found.memory_bytes),
        "build_memory_bytes": max(0, built.memory_bytes),
        **hits,
    }
