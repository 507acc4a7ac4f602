"""Status file of the pipeline: written about every second while it lives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

REPORT_SECONDS = 1.0
_LONGEST_START_SECONDS = 600.0


@dataclass
class TableCommitStatus:
    """The commits of one table. `failed_cycles` counts failures in a row and is zero again after a commit."""

    failed_cycles: int = 0
    last_error: dict[str, Any] | None = None
    last_commit_at: str | None = None
    commits: int = 0
    rows: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    commit_seconds: float = 0.0
    stage_seconds: float = 0.0
    publish_seconds: float = 0.0
    held_back: dict[str, Any] | None = None
    """The reason and the limits, if the table is held back."""


@dataclass
class PipelineStatus:
    """The content of the status file."""

    state: str = "starting"
    reason: str | None = None
    failed_cycles: int = 0
    engine_silent_seconds: float | None = None
    """How long ago the JVM last answered; None before the first request."""
    tables: dict[str, TableCommitStatus] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        body = {
            "state": self.state,
            "reason": self.reason,
            "failed_cycles": self.failed_cycles,
            "engine_silent_seconds": self.engine_silent_seconds,
            "at": datetime.now(UTC).isoformat(),
            "pid": os.getpid(),
            "tables": {name: vars(report) for name, report in self.tables.items()},
        }
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(body))
        temporary.replace(path)


@asynccontextmanager
async def starting(path: Path) -> AsyncIterator[None]:
    """Write the state `starting` while Spark starts, for ten minutes at most; a start takes a minute on busy cores."""

    async def write_regularly() -> None:
        for _ in range(int(_LONGEST_START_SECONDS / REPORT_SECONDS)):
            PipelineStatus(state="starting").write(path)
            await asyncio.sleep(REPORT_SECONDS)

    writing = asyncio.create_task(write_regularly(), name="status of the starting pipeline")
    try:
        yield
    finally:
        writing.cancel()
