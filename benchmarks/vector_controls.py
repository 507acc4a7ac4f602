"""LanceDB, DuckDB VSS and faiss HNSW beside the product, each a process in an environment made from a locked file.

None of them is a dependency of frazil (faiss is, but not as a graph). Where the environment cannot be made, the
benchmark says so, and a goal that needs it is not reached.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environments import environment_of, last_words
from benchmarks.processes import Child
from benchmarks.report import say
from benchmarks.vector_set import K, VectorSet
from frazil.errors import Unavailable

_HERE = Path(__file__).parent / "control"
LOCK = _HERE / "requirements-vectors.txt"
GOAL_RECALL = 0.99
Options = Mapping[str, int]

ENGINES: Mapping[str, str] = {
    "lancedb": "LanceDB, IVF_HNSW_SQ with its own parameters",
    "vss": "DuckDB VSS, HNSW with its own parameters",
    "faiss_hnsw": "faiss, HNSW32 over whole vectors",
}
WIDER: Mapping[str, Sequence[Options]] = {
    "lancedb": (
        {"ef": 100},
        {"refine_factor": 1},
        {"refine_factor": 2},
        {"ef": 100, "refine_factor": 3},
        {"ef": 200, "refine_factor": 5},
        {"ef": 400, "refine_factor": 10},
        {"ef": 800, "refine_factor": 10},
        {"ef": 1600, "refine_factor": 20},
    ),
    "vss": ({"ef_search": 128}, {"ef_search": 256}, {"ef_search": 512}, {"ef_search": 1024}),
    "faiss_hnsw": ({"ef_search": 64}, {"ef_search": 128}, {"ef_search": 256}, {"ef_search": 512}, {"ef_search": 1024}),
}
"""How each is asked to look further, in the order of what that costs: the first that finds enough counts."""


@dataclass(frozen=True)
class Asked:
    seconds: list[float]
    found: list[list[int]]


@dataclass
class VectorControl:
    """One engine, running."""

    name: str
    child: Child
    version: str
    built: dict[str, Any] = field(default_factory=dict)

    def build(self, made: VectorSet) -> dict[str, Any]:
        """Build its index anew: seconds of the index, of loading before, and the bytes on the disk."""
        self._told(made).unlink(missing_ok=True)
        order = {"vectors": str(made.folder / "vectors.npy"), "slots": str(made.folder / "slots.npy")}
        self.built = self.child.ask({"do": "build", "place": str(self._place(made)), **order})
        self._told(made).write_text(json.dumps(self.built))
        return self.built

    def ready(self, made: VectorSet) -> None:
        """Open the index that was built over this set before, or build it."""
        if self._told(made).exists():
            self.child.ask({"do": "open", "place": str(self._place(made))})
            self.built = json.loads(self._told(made).read_text())
        else:
            say(f"{self.name} {self.version} builds its index")
            self.build(made)
            say(f"{self.name} has built it in {self.built['seconds']:.1f} s")

    def ask(
        self, made: VectorSet, numbers: Sequence[int], *, share: float | None = None, options: Options | None = None
    ) -> Asked:
        order = {"queries": str(made.folder / "queries.npy"), "numbers": list(numbers), "k": K}
        told = self.child.ask({"do": "search", **order, "below": made.below(share), "options": dict(options or {})})
        return Asked(told["asked"], told["found"])

    def tuned(self, made: VectorSet, numbers: Sequence[int], *, share: float | None = None) -> tuple[Options, float]:
        """The cheapest way to ask it that finds 0.99 of the truth, and what it finds; if none does, the best."""
        best: tuple[Options, float] = ({}, -1.0)
        for options in ({}, *WIDER[self.name]):
            found = made.recall(self.ask(made, numbers, share=share, options=options).found, numbers, share)
            if found > best[1]:
                best = (options, found)
            if found >= GOAL_RECALL:
                break
        return best

    def _place(self, made: VectorSet) -> Path:
        return made.folder / f"{self.name}-{self.version}"

    def _told(self, made: VectorSet) -> Path:
        """Written when its index is whole."""
        return made.folder / f"{self.name}-{self.version}.json"


@dataclass(frozen=True)
class VectorControls:
    """Those that run, or the reason why none does."""

    running: Mapping[str, VectorControl]
    reason: str = ""

    @property
    def versions(self) -> dict[str, str]:
        return {name: control.version for name, control in self.running.items()}


def start_controls(running: ExitStack, folder: Path, *, cache: Path, engines: Sequence[str]) -> VectorControls:
    """Children that end with `running`; their environment is made below `cache`."""
    if not engines:
        return VectorControls({}, "they were not asked for")
    try:
        python = environment_of(LOCK, cache, "vector-controls")
    except (OSError, subprocess.SubprocessError) as error:
        reason = f"the environment of the controls cannot be made: {last_words(error)}"
        say(reason)
        return VectorControls({}, reason)
    found: dict[str, VectorControl] = {}
    for name in engines:
        command = [str(python), str(_HERE / "plain_vectors.py"), name]
        child = running.enter_context(Child(command, folder, talks=True))
        try:
            found[name] = VectorControl(name, child, str(child.tell()["version"]))
        except Unavailable as error:
            say(f"{name} does not start: {error.details}")
            return VectorControls({}, f"{name} does not start")
    return VectorControls(found)
