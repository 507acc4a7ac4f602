"""What a benchmark says: one figure, its control, their ratio, and the machine it was measured on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TextIO

__all__ = ["Machine", "Report", "figures_on_stdout", "median", "percentile", "rounded", "say"]


@dataclass(frozen=True)
class Machine:
    """Where it was measured. A load of more than the cores before we begin means: look at the ratio only."""

    cores: int
    load_before: float

    @classmethod
    def now(cls) -> Machine:
        return cls(len(os.sched_getaffinity(0)), round(os.getloadavg()[0], 2))


@dataclass(frozen=True)
class Report:
    bench: str
    figure: Mapping[str, Any]
    control: Mapping[str, Any]
    ratio: float | None
    """Ours to the control. Which direction is good, `goal` says."""
    goal: str
    reached: bool
    machine: Machine
    command: str = field(default_factory=lambda: " ".join(["frazil", *sys.argv[1:]]))

    def body(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "figure": rounded(self.figure),
            "control": rounded(self.control),
            "ratio": rounded(self.ratio),
            "goal": self.goal,
            "reached": self.reached,
            "machine": {"cores": self.machine.cores, "load_before": self.machine.load_before},
            "command": self.command,
        }


def say(text: str) -> None:
    """Progress, for whoever watches."""
    print(text, file=sys.stderr, flush=True)


def rounded(value: Any) -> Any:
    """Four significant digits: the rest is noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return value


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, min(len(ranked) - 1, -(-int(share * 1000) * len(ranked) // 1000) - 1))]


@contextmanager
def figures_on_stdout() -> Iterator[TextIO]:
    """Standard output for the one line alone: what libraries and children print meanwhile goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(kept, "w", encoding="utf-8", closefd=False) as out:
            yield out
    finally:
        os.dup2(kept, 1)
        os.close(kept)
