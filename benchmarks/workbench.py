"""A lake and a warm Spark session in this process, with the settings of the embedded product."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa

from benchmarks.report import say
from frazil.bus import Delivery, Stream
from frazil.events import Token
from frazil.events.declaration import TableSpec
from frazil.lake.catalog import Lake, LakeTable
from frazil.pipeline import open_session
from frazil.pipeline.commit import committer, target
from frazil.pipeline.jobs import SparkTasks
from frazil.pipeline.sources.postgres import LoadServices
from frazil.runtime import open_the_lake, open_warehouse
from frazil.settings import Settings


@dataclass(frozen=True)
class Workbench:
    lake: Lake
    session: Any
    """A SparkSession; benchmarks only pass it on, or write as a user of Spark would."""


def bulk_tools(bench: Workbench) -> LoadServices:
    """What a bulk job needs, without a bus: tables are made without a stream, and nothing is sent as events."""

    def make(spec: TableSpec) -> LakeTable:
        return bench.lake.create(spec, stream="", identity="")

    return LoadServices(bench.lake, SparkTasks(bench.session), make, _NoBus(), lambda name: None)


class _NoBus:
    def send(self, table: LakeTable, rows: pa.Table) -> Token:
        raise AssertionError("a benchmark of bulk loads has no bus")

    def wait_committed(self, table: LakeTable, *, timeout_seconds: float) -> LakeTable:
        return table


@contextmanager
def spark_workbench(settings: Settings) -> Iterator[Workbench]:
    """Starts Spark as the pipeline does and warms it up; one at a time in a process."""
    started = time.monotonic()
    lake = open_the_lake(settings)
    session = open_session(
        catalog_url=settings.catalog_url,
        warehouse=open_warehouse(settings),
        master=settings.pipeline.master,
        driver_memory=settings.pipeline.driver_memory,
    )
    try:
        target.warm_up(session)
        say(f"Spark is warm after {time.monotonic() - started:.1f} s")
        yield Workbench(lake, session)
    finally:
        session.stop()
        lake.close()


@dataclass
class Profile:
    """Seconds by step. Steps that run beside each other add up to more than the whole."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, step: str, seconds: float) -> None:
        self.seconds[step] = self.seconds.get(step, 0.0) + seconds

    def timed(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timing(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                self.add(step, time.perf_counter() - started)

        return timing

    @contextmanager
    def of_commits(self) -> Iterator[None]:
        """Time the steps of every commit in this process, without a word about it in their own code."""
        steps = {
            "decode": (committer, "rows"),
            "hash": (committer, "id_keys"),
            "judge": (committer.Committer, "_judge"),
            "stage": (target, "stage"),
            "audit": (target, "audit"),
            "sync": (target, "make_durable"),
            "publish": (target, "publish_stage"),
        }
        with ExitStack() as patches:
            for step, (owner, name) in steps.items():
                patches.enter_context(mock.patch.object(owner, name, self.timed(step, getattr(owner, name))))
            yield


class TimedStream:
    """A `Stream` whose reads and trims are noted in a profile."""

    def __init__(self, stream: Stream, profile: Profile) -> None:
        self._stream = stream
        self._profile = profile

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def identity(self) -> str:
        return self._stream.identity

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, first: int, *, max_messages: int = 256, max_bytes: int = 16 << 20) -> list[Delivery]:
        started = time.perf_counter()
        try:
            return await self._stream.read(first, max_messages=max_messages, max_bytes=max_bytes)
        finally:
            self._profile.add("read", time.perf_counter() - started)

    async def trim(self, below: int) -> None:
        started = time.perf_counter()
        try:
            await self._stream.trim(below)
        finally:
            self._profile.add("trim", time.perf_counter() - started)
