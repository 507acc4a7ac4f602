"""Health of the parts of the product: bus, catalog, pipeline, query workers, search."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from frazil.errors import FrazilError, Unavailable
from frazil.events.declaration import entity_of
from frazil.gateway.gateway import Gateway
from frazil.gateway.search.shelf_readers import ShelfReaders
from frazil.serving.sql import QueryPool

STALE_SECONDS = 15.0
STARTING_SECONDS = 90.0
"""A pipeline that has not reported yet counts as starting for so long."""
_NO_WORKER_SECONDS = 20.0
"""Query workers are starting for so long at most; on an idle machine it takes 1 to 2 s."""
SILENT_SECONDS = 4.0
"""While events wait, a pipeline or an engine without a report for so long is degraded. Both report once a second."""
_WARM_UP_SECONDS = 0.5
"""The ids of a new or small table are read in less: its first event waits for them, and nobody notices."""
_PROBE_SECONDS = 2.0
_PROBE_KEPT_SECONDS = 1.0
_FAILURE_COUNTS_SECONDS = 10.0
"""A publish that failed so long ago, with none since, says nothing about the bus now."""


class PartsHealth:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._bus: dict[str, Any] = {"status": "starting"}
        self._bus_probed_at = -_PROBE_KEPT_SECONDS
        self._probing = asyncio.Lock()

    async def all(self) -> dict[str, dict[str, Any]]:
        parts: dict[str, dict[str, Any]] = {"gateway": self.gateway(), "bus": await self.bus(), "lake": self.lake()}
        if self._gateway.pipeline_file is not None:
            parts["pipeline"] = self.pipeline()
        if self._gateway.pool is not None:
            parts["query"] = self.query(self._gateway.pool)
        if self._gateway.served is not None:
            parts["search"] = self.search(self._gateway.served)
        return parts

    async def health(self) -> dict[str, Any]:
        parts = await self.all()
        states = [part["status"] for part in parts.values()]
        if all(state == "ok" for state in states):
            overall = "ok"
        elif all(state in ("ok", "starting") for state in states):
            overall = "starting"
        else:
            overall = "degraded"
        body: dict[str, Any] = {"status": overall, "parts": parts}
        reasons = [f"{name}: {part['reason']}" for name, part in parts.items() if part.get("reason")]
        if reasons and overall != "ok":
            body["reason"] = "; ".join(reasons)
        return body

    def gateway(self) -> dict[str, Any]:
        """Whether every table takes events: not while its ids are being read, and not where they could not be read."""
        writers = self._gateway.writers
        if failed := writers.not_warmed():
            name, error = next(iter(failed.items()))
            return {"status": "degraded", "reason": f"{name}: {error.message}", "tables": sorted(failed)}
        if late := writers.warming(longer_than=_WARM_UP_SECONDS):
            left = max((stream.warm_up_seconds_left or 0.0 for stream in late.values()), default=0.0)
            reason = f"the event ids of {len(late)} tables are being read"
            return {"status": "starting", "reason": reason, "tables": sorted(late), "seconds_left": round(left, 1)}
        return {"status": "ok"}

    async def bus(self) -> dict[str, Any]:
        """Whether the bus answers, probed at most once a second."""
        async with self._probing:
            if time.monotonic() - self._bus_probed_at >= _PROBE_KEPT_SECONDS:
                self._bus = await self._probe_bus()
                self._bus_probed_at = time.monotonic()
            return self._bus

    async def _probe_bus(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._gateway.bus.names()
        except TimeoutError:
            return {"status": "down", "reason": f"no answer within {_PROBE_SECONDS:g} s"}
        except FrazilError as error:
            return {"status": "down", "reason": error.message}
        # A stream whose disk was full looks well and takes nothing.
        if reason := self._gateway.writers.failing(within_seconds=_FAILURE_COUNTS_SECONDS):
            return {"status": "degraded", "reason": f"events are not taken: {reason}"}
        return {"status": "ok"}

    def lake(self) -> dict[str, Any]:
        directory = self._gateway.directory
        if directory.unreachable is not None:
            return {"status": "down", "reason": directory.unreachable.message}
        broken = {name: error for name, error in directory.broken().items() if error.code != "foreign_table"}
        if broken:
            name, error = next(iter(broken.items()))
            return {"status": "degraded", "reason": f"{name}: {error.message}", "broken_tables": sorted(broken)}
        return {"status": "ok", "tables": len(directory.tables())}

    def pipeline(self) -> dict[str, Any]:
        """The last report of the pipeline and its age. Silence while events wait, and events that wait for too long,
        make it degraded, whatever it reports."""
        report = self.pipeline_report()
        now = datetime.now(UTC)
        if report is None:
            waited = (now - self._gateway.started_at).total_seconds()
            if waited < STARTING_SECONDS:
                return {"status": "starting", "reason": "the pipeline has not reported yet"}
            return {"status": "down", "reason": "the pipeline has never reported"}
        age = (now - report["at"]).total_seconds()
        last_commit = self._last_commit()
        silence = report.get("engine_silent_seconds")
        part: dict[str, Any] = {
            "status": report["state"],
            "report_age_seconds": round(age, 1),
            "engine_silent_seconds": None if silence is None else round(age + silence, 1),
            "failed_cycles": report.get("failed_cycles", 0),
            "last_commit_age_seconds": round((now - last_commit).total_seconds(), 1) if last_commit else None,
        }
        if report["state"] == "stopped":
            part |= {"status": "down", "reason": "the pipeline was stopped"}
        elif age > STALE_SECONDS:
            part |= {"status": "down", "reason": f"the pipeline has not reported for {age:.0f} s"}
        elif report.get("reason"):
            part["reason"] = report["reason"]
        return part | self._behind(part, now) if part["status"] == "ok" else part

    def _behind(self, part: dict[str, Any], now: datetime) -> dict[str, Any]:
        """The facts that contradict a report of `ok`."""
        is_silent = max(part["report_age_seconds"], part["engine_silent_seconds"] or 0.0) > SILENT_SECONDS
        if is_silent:  # other gateways may have taken events that nobody commits
            self._gateway.writers.follow_soon()
        waiting = self._gateway.writers.waiting()
        if not waiting:
            return {}
        events = sum(backlog.events for backlog in waiting.values())
        age, silence = part["report_age_seconds"], part["engine_silent_seconds"]
        if age > SILENT_SECONDS:
            return {"status": "degraded", "reason": f"the pipeline is silent for {age:.0f} s, {events:,} events wait"}
        if silence is not None and silence > SILENT_SECONDS:
            return {"status": "degraded", "reason": f"the engine is silent for {silence:.0f} s, {events:,} events wait"}
        ages = {name: now.timestamp() - (of.oldest_received_us or 0) / 1e6 for name, of in waiting.items()}
        target = self._gateway.lag_target_seconds
        late = {entity_of(name).removeprefix("main."): lag for name, lag in sorted(ages.items()) if lag > target}
        if not late:
            return {}
        name, lag = max(late.items(), key=lambda item: item[1])
        reason = f"events of {name} wait for {lag:.0f} s for their commit, the target is {target:g} s"
        return {"status": "degraded", "reason": reason, "late_tables": list(late)}

    def pipeline_must_be_there(self, *, hint: str = "see `frazil status`") -> None:
        """Raise `Unavailable` if there is no pipeline to run a job. One that is starting will run it."""
        if self._gateway.pipeline_file is None:
            return
        part = self.pipeline()
        if part["status"] == "down":
            raise Unavailable(
                f"the pipeline does this, and it does not run: {part.get('reason', part['status'])}",
                code="pipeline_unavailable",
                hint=hint,
            )

    def query(self, pool: QueryPool) -> dict[str, Any]:
        """Whether there are workers, whether queries get their turn, and which walls this kernel lacks."""
        status = pool.status()
        missing = sorted(name for name, state in status["walls"].items() if not state.startswith("up"))
        part: dict[str, Any] = {"status": "ok", "workers": status["workers"]}
        if status["down_seconds"] > _NO_WORKER_SECONDS:
            part |= {"status": "down", "reason": f"no query worker is up since {status['down_seconds']:.0f} s"}
        elif status["down_seconds"] or not status["workers"]:
            part |= {"status": "starting", "reason": "no query worker is up"}
        elif status["stopped"] >= status["workers"]:
            part |= {"status": "degraded", "reason": "all query workers stand still: their processes are stopped"}
        elif status["stalled_seconds"]:
            stalled = status["stalled_seconds"]
            part |= {"status": "degraded", "reason": f"queries wait, and none came to its turn for {stalled:.0f} s"}
        elif status["faults"]:
            part |= {"status": "degraded", "reason": status["faults"][0]}
        return part | ({"walls_missing": missing} if missing else {})

    def search(self, served: ShelfReaders) -> dict[str, Any]:
        """Whether every shelf serves what its register says; those that do not, with the reason."""
        shelves = served.status()
        troubled = {one["shelf"]: one for one in shelves if one["trouble"]}
        part: dict[str, Any] = {"status": "ok", "shelves": len(shelves)}
        if troubled:
            name, first = next(iter(troubled.items()))
            reason = f"{name}: {first['trouble']['reason']}"
            return part | {"status": "degraded", "reason": reason, "degraded_shelves": list(troubled.values())}
        if served.is_starting:
            part |= {"status": "starting", "reason": "artifacts are being opened"}
        return part

    def _last_commit(self) -> datetime | None:
        times = [table.last_commit_at for table in self._gateway.directory.tables()]
        return max((at for at in times if at is not None), default=None)

    def pipeline_report(self) -> dict[str, Any] | None:
        """The status file of the pipeline, with `at` as a time; None if it cannot be read."""
        path = self._gateway.pipeline_file
        if path is None:
            return None
        try:
            report = msgspec.json.decode(path.read_bytes())
            at = datetime.fromisoformat(report["at"])
            return {**report, "state": str(report["state"]), "at": at}
        except (OSError, ValueError, KeyError, TypeError):
            return None
