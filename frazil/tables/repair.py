"""Repairs that a person decides on: when bus and table contradict each other, or the table's two watermarks do.

Nothing here guesses. The first step lists exactly what is lost; the repair itself needs the confirmation of the caller.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import Any

from frazil.bus import EventBus, StreamMissing
from frazil.crash import crash_point
from frazil.errors import BusGap, Conflict
from frazil.events import first_position, sequence_of
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.recovery import restate_watermark, skip_lost_range
from frazil.storage import Journal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Damage:
    """How the bus contradicts the table."""

    kind: str
    """`missing`, `replaced`, `end_lost` or `gap`."""
    message: str
    resume_at: int
    """The first sequence that is not lost: of the same stream for a gap, of a new one otherwise."""
    lost: dict[str, Any]


@dataclass(frozen=True)
class RepairReport:
    table: str
    what: str
    changed: bool
    message: str
    lost: dict[str, Any] | None = None
    watermark_before: int | None = None
    watermark_after: int | None = None

    def body(self) -> dict[str, Any]:
        return {**vars(self), "table": self.table.removeprefix("main.")}


async def find_damage(bus: EventBus, table: LakeTable) -> Damage | None:
    """The contradiction between the table and its stream, or None."""
    next_needed = sequence_of(table.watermark)
    short = table.spec.short_name
    after = {"from_position": table.watermark, "from_message": next_needed}
    unknown = {**after, "to_position": None, "to_message": None}
    try:
        stream = await bus.open(table.stream)
    except StreamMissing:
        message = f"the stream of {short!r} is gone: every event after message {next_needed - 1} is lost"
        return Damage("missing", message, next_needed, unknown)
    if stream.identity != table.stream_identity:
        message = f"{short!r} was fed from another stream: every event of that after message {next_needed - 1} is lost"
        return Damage("replaced", message, next_needed, unknown)
    head = await stream.head()
    if head < next_needed - 1:
        message = (
            f"{short!r} is committed up to message {next_needed - 1}, and its stream ends at {head}: "
            f"the bus is an older copy, and every event after message {next_needed - 1} is lost"
        )
        return Damage("end_lost", message, next_needed, unknown)
    try:
        await stream.read(next_needed, max_messages=1)
    except BusGap as gap:
        found = max(await stream.first(), int((gap.details or {}).get("found", 0)))
        if found <= next_needed:
            raise
        lost = {**after, "to_position": first_position(found) - 1, "to_message": found - 1}
        message = f"messages {next_needed} to {found - 1} of {short!r} are gone from the bus and were never committed"
        return Damage("gap", message, found, lost)
    return None


async def repair_bus(
    name: str, *, bus: EventBus, lake: Lake, journal: Journal, accept_loss: bool = False
) -> RepairReport:
    """Make table and bus fit again. Without `accept_loss` it only says, as a `Conflict`, what would be given up."""
    table = await asyncio.to_thread(lake.table, name)
    damage = await find_damage(bus, table)
    if damage is None:
        return RepairReport(name, "bus", False, "the table and its stream fit: there is nothing to repair")
    if not accept_loss:
        raise Conflict(
            damage.message,
            code="loss_not_accepted",
            hint="bring the old bus back if you can; to go on without these events: "
            f"`frazil repair bus {table.spec.short_name} --accept-loss`",
            details={"damage": damage.kind, "lost": damage.lost},
        )
    if damage.kind == "gap":
        repaired = await asyncio.to_thread(
            skip_lost_range,
            lake,
            table,
            watermark=first_position(damage.resume_at),
            stream=table.stream,
            identity=table.stream_identity,
        )
    else:
        repaired = await _onto_a_new_stream(bus, lake, table, damage)
    journal.append(
        "bus_repaired",
        table=name,
        damage=damage.kind,
        lost=damage.lost,
        watermark_before=table.watermark,
        watermark_after=repaired.watermark,
        stream=repaired.stream,
    )
    log.warning("bus repaired, loss accepted: %s", damage.message, extra={"table": name})
    return RepairReport(name, "bus", True, damage.message, damage.lost, table.watermark, repaired.watermark)


async def _onto_a_new_stream(bus: EventBus, lake: Lake, table: LakeTable, damage: Damage) -> LakeTable:
    stream = await bus.create(f"{table.name}.{uuid.uuid4().hex}", first_sequence=damage.resume_at)
    crash_point("after_repair_stream_before_switch")
    try:
        repaired = await asyncio.to_thread(
            skip_lost_range,
            lake,
            table,
            watermark=first_position(damage.resume_at),
            stream=stream.name,
            identity=stream.identity,
        )
    except Conflict:
        await bus.delete(stream.name)
        raise
    if damage.kind == "end_lost":
        await bus.delete(table.stream)  # all that it holds is committed
    return repaired


async def repair_watermark(name: str, *, lake: Lake, journal: Journal) -> RepairReport:
    """Let the table's data say how far it is; events after that are read from the bus again, if it still has them."""
    table = await asyncio.to_thread(lake.table, name)
    stated = table.properties.get("frazil.watermark")
    repaired, watermark = await asyncio.to_thread(restate_watermark, lake, name)
    journal.append("watermark_repaired", table=name, watermark_before=stated, watermark_after=watermark)
    log.warning("watermark repaired", extra={"table": name, "before": stated, "after": watermark})
    changed = stated != str(watermark)
    message = (
        f"the table stated {stated}, its data says {watermark}: events from there on are read again"
        if changed
        else f"the table and its data agree on {watermark}"
    )
    before = int(stated) if stated and stated.isdecimal() else None
    return RepairReport(name, "watermark", changed, message, None, before, repaired.watermark)
