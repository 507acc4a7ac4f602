"""Artifact operations: list them, verify one, promote one, roll back.

A change of the register is announced over the bus; the leases show when all gateways of the table have followed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil.bus import EventBus
from frazil.embedding import OWN
from frazil.errors import FrazilError, NotFound, Unavailable
from frazil.gateway.search.query_models import QueryModels
from frazil.gateway.search.shelf_reader import SearchedTable
from frazil.gateway.search.shelf_readers import ShelfReaders
from frazil.lake.catalog import Lake, LakeTable
from frazil.serving import Profile, Profiles, search
from frazil.serving.artifacts import (
    MANIFEST,
    ArtifactEntry,
    ArtifactRefused,
    Lease,
    LocalCopies,
    Manifest,
    Shelf,
    announce,
    decode_manifest,
    open_shelf,
    seal_of,
    workplace,
)
from frazil.storage import Journal

_LOOK_SECONDS = 0.1


class Artifacts:
    def __init__(self, *, lake: Lake, bus: EventBus, journal: Journal, served: ShelfReaders) -> None:
        self._lake = lake
        self._bus = bus
        self._journal = journal
        self._served = served

    def profile(self, table: str, name: str | None) -> Profile | None:
        """A profile of this table by its name."""
        if name is None:
            return None
        profile = Profiles(self._lake.registry).get(name)
        if profile.table != table:
            short = table.removeprefix("main.")
            raise NotFound(
                f"{name!r} is no profile of {short!r}", code="profile_not_found", hint=f"frazil profiles list {short}"
            )
        return profile

    def shelf(self, table: str, profile: Profile | None = None) -> Shelf:
        name = table if profile is None else profile.shelf
        return open_shelf(self._lake.registry, self._lake.warehouse, name, self._served.settings)

    def listed(self, shelf: Shelf) -> dict[str, Any]:
        """All artifacts of a shelf, the newest first, and who serves which."""
        register, leases = shelf.register(), shelf.leases()
        return {
            **_named(shelf),
            "current": register.current.generation if register.current else None,
            "previous": register.previous.generation if register.previous else None,
            "artifacts": [_summary(entry, leases) for entry in reversed(register.entries)],
            "readers": [_lease(lease) for lease in leases],
        }

    def show(self, shelf: Shelf, name: str) -> dict[str, Any]:
        """One artifact: what the register says of it, and its manifest, build report and all."""
        entry = _entry(shelf, name)
        generation = entry.generation
        raw = shelf.objects.get(shelf.key(generation, MANIFEST))
        if seal_of(raw) != entry.seal:
            raise FrazilError(
                f"the manifest of {generation} is not the one that was published",
                code="artifact_manifest_damaged",
                hint=f"frazil artifacts verify {_named(shelf)['table']} {generation}",
            )
        return {**_named(shelf), **_summary(entry, shelf.leases()), "manifest": _shown(decode_manifest(raw))}

    def verify(self, shelf: Shelf, name: str, table: LakeTable, profile: Profile | None) -> dict[str, Any]:
        """Fetch an artifact anew and check all of it: every byte, the engines, the counts, the canaries."""
        entry = _entry(shelf, name)
        generation = entry.generation
        searched = self._served.searched(table, profile)
        reader, begun = f"verify-{secrets.token_hex(4)}", time.monotonic()
        faults: list[dict[str, Any]] = []
        shelf.take(reader, generation)
        try:
            with workplace(self._served.cache / ".verify") as place:
                faults = self._faults(shelf, entry, searched, place)
        finally:
            shelf.leave(reader)
        return {
            **_named(shelf),
            "generation": generation,
            "state": entry.state.value,
            "ok": not faults,
            "faults": faults,
            "bytes": entry.size,
            "seconds": round(time.monotonic() - begun, 3),
        }

    def _faults(self, shelf: Shelf, entry: ArtifactEntry, searched: SearchedTable, place: Path) -> list[dict[str, Any]]:
        """Everything that is wrong with it. A bucket that cannot be reached is nobody's fault: that is raised."""
        try:
            copy = LocalCopies(place, shelf.objects, shelf.table).fetch(entry)
            try:
                model = QueryModels(self._served.models).of_artifact(entry.model)
            except FrazilError:
                copy.release()
                raise
            own = entry.model is not None and entry.model.name == OWN
            search.Generation(copy, searched.searchable(shelf.table, model, own=own)).retire()
        except ArtifactRefused as refused:
            return [asdict(fault) for fault in refused.faults]
        except Unavailable as error:
            if error.code != "artifact_other_model":
                raise
            return [_fault(error)]
        except FrazilError as error:
            return [_fault(error)]
        return []

    async def promote(
        self, shelf: Shelf, generation: str, *, going_back: bool, wait_seconds: float, by: str
    ) -> dict[str, Any]:
        """Make an artifact current, and wait for those who serve the table to follow."""
        before = (await asyncio.to_thread(shelf.register)).current
        entry = await asyncio.to_thread(lambda: shelf.promote(generation, going_back=going_back))
        self._note("artifact_promoted", shelf, generation=generation, by=by, previous=before and before.generation)
        return await self._announce(shelf, entry, wait_seconds, previous=before.generation if before else None)

    async def rollback(self, shelf: Shelf, *, reason: str, wait_seconds: float, by: str) -> dict[str, Any]:
        """Go back to the previous artifact; the current one is withdrawn, and says why."""
        before = (await asyncio.to_thread(shelf.register)).current
        entry = await asyncio.to_thread(shelf.rollback, reason)
        assert entry is not None, "without a previous one it is refused"
        withdrawn = before.generation if before else None
        self._note("artifact_rolled_back", shelf, generation=withdrawn, to=entry.generation, by=by, reason=reason)
        return await self._announce(shelf, entry, wait_seconds, previous=withdrawn)

    async def _announce(
        self, shelf: Shelf, entry: ArtifactEntry, wait_seconds: float, *, previous: str | None
    ) -> dict[str, Any]:
        try:
            await announce(self._bus, shelf.table, entry.generation)
        except FrazilError as error:
            # The register has moved; whoever serves looks at it within seconds, announced or not.
            self._note("announcement_failed", shelf, generation=entry.generation, reason=error.message)
        served = await self._followed(shelf, entry.generation, wait_seconds)
        return {**_named(shelf), "generation": entry.generation, "previous": previous, **served}

    async def _followed(self, shelf: Shelf, generation: str, wait_seconds: float) -> dict[str, Any]:
        """Who serves it by now, and who does not yet."""
        deadline = time.monotonic() + wait_seconds
        while True:
            leases = [lease for lease in await asyncio.to_thread(shelf.leases) if lease.serving]
            behind = [lease for lease in leases if lease.serving != generation]
            reader = self._served.of_shelf(shelf.table)
            trouble = reader.trouble if reader is not None else None
            refused = trouble is not None and trouble.generation == generation
            if not behind or refused or time.monotonic() >= deadline:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return {
            "complete": not behind and not refused,
            "served_by": [lease.reader for lease in leases if lease.serving == generation],
            "behind": [_lease(lease) for lease in behind],
            "trouble": {"code": trouble.code, "reason": trouble.reason} if trouble is not None and refused else None,
        }

    def _note(self, kind: str, shelf: Shelf, **fields: Any) -> None:
        self._journal.append(kind, table=shelf.table.partition("@")[0], shelf=shelf.table, **fields)


def _entry(shelf: Shelf, name: str) -> ArtifactEntry:
    """By its generation, or as what is `current` or `previous`."""
    register = shelf.register()
    if name not in ("current", "previous"):
        return register.named(name)
    found = register.current if name == "current" else register.previous
    if found is None:
        table = _named(shelf)["table"]
        raise NotFound(f"{table!r} has no {name} artifact", code="artifact_not_found", hint=f"frazil build {table}")
    return found


def _named(shelf: Shelf) -> dict[str, Any]:
    table, _, profile = shelf.table.partition("@")
    return {"table": table.removeprefix("main."), "profile": profile or None}


def _summary(entry: ArtifactEntry, leases: list[Lease]) -> dict[str, Any]:
    now = time.time()
    return {
        "generation": entry.generation,
        "state": entry.state.value,
        "snapshot_id": entry.cut.snapshot_id,
        "watermark": entry.cut.watermark,
        "model": asdict(entry.model) if entry.model else None,
        **asdict(entry.counts),
        "bytes": entry.size,
        "entered_at": _time(entry.entered_at),
        "age_seconds": round(now - entry.entered_at, 1),
        "promoted_at": _time(entry.promoted_at),
        "withdrawn": entry.withdrawn or None,
        "served_by": [lease.reader for lease in leases if lease.serving == entry.generation],
        "held_by": [lease.reader for lease in leases if entry.generation in lease.generations],
    }


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "reader": lease.reader,
        "serving": lease.serving or None,
        "holds": list(lease.generations),
        "said_seconds_ago": round(time.time() - lease.at, 1),
    }


def _shown(manifest: Manifest) -> dict[str, Any]:
    """The manifest; of its canaries what can be read, as vectors are hundreds of numbers."""
    shown = asdict(manifest)
    shown["canaries"] = [
        {"part": canary.part, "expected": list(canary.expected), "words": canary.words or None}
        for canary in manifest.canaries
    ]
    return shown


def _fault(error: FrazilError) -> dict[str, Any]:
    return {"code": error.code, "reason": error.message, "file": ""}


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
