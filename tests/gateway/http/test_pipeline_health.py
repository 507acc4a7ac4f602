"""Health does not say ok while events wait for a pipeline that is silent, stopped or late."""

from __future__ import annotations

import asyncio
from pathlib import Path

from frazil.bus.memory import MemoryBus
from frazil.gateway import health as parts
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import Running, commit, event, eventually, running
from tests.gateway.http.test_status import health, report


async def test_an_engine_that_is_silent_while_events_wait_is_degraded(
    gateway: Running, memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    """The Python half of the pipeline reports on as if nothing were wrong."""
    report(tmp_path, engine_silent_seconds=parts.SILENT_SECONDS + 1)
    assert (await health(gateway))["status"] == "ok", "nobody waits for it"
    await gateway.accept([event("a"), event("b")])
    told = await health(gateway)
    assert told["status"] == "degraded" and "engine" in told["parts"]["pipeline"]["reason"]
    assert "2 events" in told["parts"]["pipeline"]["reason"]
    report(tmp_path, engine_silent_seconds=0.4)
    assert (await health(gateway))["status"] == "ok"
    report(tmp_path, engine_silent_seconds=parts.SILENT_SECONDS + 1)
    await commit(memory_bus, lake)
    await gateway.gateway.directory.refresh()
    assert (await health(gateway))["status"] == "ok"


async def test_a_pipeline_that_is_silent_while_events_wait_is_degraded_before_it_counts_as_down(
    gateway: Running, tmp_path: Path
) -> None:
    report(tmp_path, age_seconds=parts.SILENT_SECONDS + 1)
    assert (await health(gateway))["status"] == "ok"
    await gateway.accept([event("a")])
    told = (await health(gateway))["parts"]["pipeline"]
    assert told["status"] == "degraded" and "1 events" in told["reason"]
    report(tmp_path, age_seconds=parts.STALE_SECONDS + 1)
    assert (await health(gateway))["parts"]["pipeline"]["status"] == "down"


async def test_events_that_wait_beyond_the_target_are_degraded_with_the_table_named(
    gateway: Running, memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    await gateway.declare(name="clicks")
    await gateway.accept([event("a")], table="clicks")
    await commit(memory_bus, lake, "main.clicks")
    await gateway.accept([event("b")])
    await gateway.gateway.directory.refresh()
    report(tmp_path)
    assert (await health(gateway))["status"] == "ok"
    gateway.gateway.lag_target_seconds = 0.01
    await asyncio.sleep(0.02)
    part = (await health(gateway))["parts"]["pipeline"]
    assert part["status"] == "degraded" and part["late_tables"] == ["orders"] and "orders" in part["reason"]
    report(tmp_path, state="starting")
    assert (await health(gateway))["parts"]["pipeline"]["status"] == "starting"
    report(tmp_path)
    await commit(memory_bus, lake)
    await gateway.gateway.directory.refresh()
    assert (await health(gateway))["status"] == "ok"


async def test_the_lag_of_an_entity_goes_by_its_own_name(gateway: Running, tmp_path: Path) -> None:
    await gateway.declare(name="people", kind="entity", key=["item"])
    await gateway.accept([event("a")], table="people")
    report(tmp_path)
    gateway.gateway.lag_target_seconds = 0.01
    await asyncio.sleep(0.02)
    assert (await health(gateway))["parts"]["pipeline"]["late_tables"] == ["people"]


async def test_events_that_another_gateway_took_are_known_while_the_pipeline_is_silent(
    gateway: Running, memory_bus: MemoryBus, lake: Lake, tmp_path: Path
) -> None:
    await gateway.accept([event("a")])
    async with running(memory_bus, lake, tmp_path) as other:
        await other.accept([event("b"), event("c")])
        await commit(memory_bus, lake)
        await gateway.gateway.directory.refresh()
        await other.accept([event("d")])
    report(tmp_path)
    assert (await health(gateway))["status"] == "ok"
    report(tmp_path, age_seconds=parts.SILENT_SECONDS + 1)

    async def is_degraded() -> bool:
        return bool((await health(gateway))["parts"]["pipeline"]["status"] == "degraded")

    await eventually(is_degraded)
