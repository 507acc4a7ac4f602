"""Register of the artifacts of one table, and the rules by which their states change.

building → candidate → current → previous → stale → removing, and away. Everything here is a pure function of the
document and the time; `shelf.py` carries it out. At most one artifact is current and at most one is previous.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from frazil.errors import Conflict, DataLoss, NotFound
from frazil.serving.artifacts.manifest import ArtifactModel, Counts, Manifest, Seal, SourceState

FORMAT = 1


class ArtifactState(StrEnum):
    BUILDING = "building"
    """Its files are on their way to the bucket."""
    CANDIDATE = "candidate"
    """It is complete, and was never served."""
    CURRENT = "current"
    PREVIOUS = "previous"
    """What a rollback returns to."""
    STALE = "stale"
    REMOVING = "removing"
    """Its files are being deleted; nobody may begin to read it."""


_IDLE = {ArtifactState.CANDIDATE, ArtifactState.STALE}
READABLE = {ArtifactState.CANDIDATE, ArtifactState.CURRENT, ArtifactState.PREVIOUS, ArtifactState.STALE}


@dataclass(frozen=True)
class ArtifactEntry:
    generation: str
    state: ArtifactState
    cut: SourceState
    model: ArtifactModel | None
    counts: Counts
    seal: Seal
    size: int
    entered_at: float
    touched_at: float
    """The last sign of life of its builder, or when its state changed."""
    promoted_at: float | None = None
    withdrawn: str = ""
    """Why it was rolled back. It does not become current again by itself."""

    @property
    def was_good(self) -> bool:
        return self.promoted_at is not None and not self.withdrawn


@dataclass(frozen=True)
class Register:
    table: str
    entries: tuple[ArtifactEntry, ...] = ()
    format: int = FORMAT

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, table: str, raw: bytes) -> Register:
        try:
            register = msgspec.json.decode(raw, type=Register)
        except msgspec.DecodeError as error:
            raise DataLoss(f"the register of the artifacts of {table} cannot be read: {error}") from error
        if register.format != FORMAT or register.table != table:
            raise DataLoss(f"the register of the artifacts of {table} is of another kind ({register.format})")
        return register

    @property
    def current(self) -> ArtifactEntry | None:
        return self._in(ArtifactState.CURRENT)

    @property
    def previous(self) -> ArtifactEntry | None:
        return self._in(ArtifactState.PREVIOUS)

    def find(self, generation: str) -> ArtifactEntry | None:
        return next((entry for entry in self.entries if entry.generation == generation), None)

    def named(self, generation: str) -> ArtifactEntry:
        if (entry := self.find(generation)) is None:
            raise NotFound(
                f"{self.table} has no artifact {generation}",
                code="artifact_not_found",
                hint=f"frazil artifacts list {self.table}",
            )
        return entry

    def _in(self, state: ArtifactState) -> ArtifactEntry | None:
        return next((entry for entry in self.entries if entry.state is state), None)

    def _with(self, *changed: ArtifactEntry) -> Register:
        by_name = {entry.generation: entry for entry in (*self.entries, *changed)}
        return replace(self, entries=tuple(by_name[name] for name in sorted(by_name)))

    # Each of the following is the register afterwards. Doing it again changes nothing.

    def entered(self, manifest: Manifest, seal: Seal, now: float) -> Register:
        """A builder begins to upload."""
        if self.find(manifest.generation) is not None:
            raise Conflict(
                f"there is an artifact {manifest.generation} of {self.table} already", code="artifact_exists"
            )
        entry = ArtifactEntry(
            generation=manifest.generation,
            state=ArtifactState.BUILDING,
            cut=manifest.cut,
            model=manifest.model,
            counts=manifest.counts,
            seal=seal,
            size=manifest.size + seal.size,
            entered_at=now,
            touched_at=now,
        )
        return self._with(entry)

    def touched(self, generation: str, now: float) -> Register:
        """Its builder is alive."""
        return self._with(replace(self._of_builder(generation), touched_at=now))

    def published(self, generation: str, now: float) -> Register:
        """All of its files are there."""
        entry = self.find(generation)
        if entry is not None and entry.state in READABLE:
            return self
        return self._with(replace(self._of_builder(generation), state=ArtifactState.CANDIDATE, touched_at=now))

    def promoted(self, generation: str, now: float, *, going_back: bool = False) -> Register:
        """It is current; who was so before is previous; candidates that are older are stale."""
        entry, current, previous = self.named(generation), self.current, self.previous
        if entry is current:
            return self
        if entry.state not in READABLE:
            raise Conflict(
                f"the artifact {generation} of {self.table} is {entry.state.value}", code="artifact_incomplete"
            )
        if not going_back:
            self._must_be_newer(entry)
        stale = [
            other
            for other in self.entries
            if other.state is ArtifactState.CANDIDATE and other is not entry and other.generation < generation
        ]
        stale += [previous] if previous and previous is not entry else []
        left = [replace(current, state=ArtifactState.PREVIOUS, touched_at=now)] if current else []
        chosen = replace(entry, state=ArtifactState.CURRENT, touched_at=now, promoted_at=now, withdrawn="")
        return self._with(
            *(replace(other, state=ArtifactState.STALE, touched_at=now) for other in stale), *left, chosen
        )

    def rolled_back(self, now: float, reason: str, *, failed: str | None = None) -> Register:
        """Previous is current again; what was current is withdrawn. With `failed`, only if that one is current."""
        current, previous = self.current, self.previous
        if failed is not None and (current is None or current.generation != failed):
            return self
        if current is None or previous is None:
            raise Conflict(
                f"{self.table} has no previous artifact to go back to",
                code="artifact_no_previous",
                hint=f"name one: frazil artifacts list {self.table}",
            )
        served = [entry for entry in self.entries if entry.state is ArtifactState.STALE and entry.was_good]
        next_back = max(served, key=lambda entry: entry.promoted_at or 0.0, default=None)
        changed = [
            replace(current, state=ArtifactState.STALE, touched_at=now, withdrawn=reason or "rolled back"),
            replace(previous, state=ArtifactState.CURRENT, touched_at=now, promoted_at=now),
        ]
        if next_back is not None:
            changed.append(replace(next_back, state=ArtifactState.PREVIOUS, touched_at=now))
        return self._with(*changed)

    def doomed(self, generation: str, now: float) -> Register:
        return self._with(replace(self.named(generation), state=ArtifactState.REMOVING, touched_at=now))

    def all_doomed(self, now: float, table_id: str | None = None) -> Register:
        """Of the table of this id, or all."""
        doomed = [entry for entry in self.entries if table_id in (None, entry.cut.table_id)]
        return self._with(*(replace(entry, state=ArtifactState.REMOVING, touched_at=now) for entry in doomed))

    def without_doomed(self) -> Register:
        return replace(
            self, entries=tuple(entry for entry in self.entries if entry.state is not ArtifactState.REMOVING)
        )

    def removed(self, generation: str) -> Register:
        kept = tuple(
            entry
            for entry in self.entries
            if entry.generation != generation or entry.state is not ArtifactState.REMOVING
        )
        return replace(self, entries=kept)

    def _of_builder(self, generation: str) -> ArtifactEntry:
        entry = self.find(generation)
        if entry is None or entry.state is not ArtifactState.BUILDING:
            raise Conflict(
                f"the artifact {generation} of {self.table} was given up: its builder was silent for too long",
                code="artifact_given_up",
                hint="build it again",
            )
        return entry

    def _must_be_newer(self, entry: ArtifactEntry) -> None:
        if entry.withdrawn:
            raise Conflict(
                f"the artifact {entry.generation} was rolled back: {entry.withdrawn}",
                code="artifact_withdrawn",
                hint="build a new one, or take it all the same: frazil artifacts swap --back",
            )
        current = self.current
        if current is None:
            return
        same = (current.cut.stream, current.cut.table_id) == (entry.cut.stream, entry.cut.table_id)
        # Positions of two streams cannot be compared. The table went over to the newer one, and does not go back.
        older = entry.cut.watermark < current.cut.watermark if same else entry.generation < current.generation
        if older:
            raise Conflict(
                f"the artifact {entry.generation} is older than {current.generation}, which is current",
                code="artifact_older",
                hint="to go back on purpose: frazil artifacts rollback, or swap --back",
            )


@dataclass(frozen=True)
class Policy:
    """How long artifacts stay."""

    keep: int = 24
    """The newest this many complete ones are never removed."""
    grace_seconds: float = 86_400.0
    """Nor is one that went out of service less than this ago."""
    silent_seconds: float = 6 * 3_600.0
    """A builder without a sign of life for so long is dead; so is whoever left files that no register names."""
    lease_seconds: float = 120.0
    """A reader whose lease is older than this is gone."""


def to_remove(register: Register, policy: Policy, now: float, held: Collection[str]) -> Iterable[ArtifactEntry]:
    """What may go: what someone began to remove, what dead builders left, and what is stale, old and held by nobody."""
    complete = sorted((entry for entry in register.entries if entry.state in READABLE), key=_rank, reverse=True)
    kept = {entry.generation for entry in complete[: policy.keep]}
    for entry in register.entries:
        if entry.generation in held:
            continue
        idle = now - entry.touched_at
        if (
            entry.state is ArtifactState.REMOVING
            or (entry.state is ArtifactState.BUILDING and idle > policy.silent_seconds)
            or (entry.state in _IDLE and entry.generation not in kept and idle > policy.grace_seconds)
        ):
            yield entry


def _rank(entry: ArtifactEntry) -> tuple[bool, float, str]:
    return (entry.state in (ArtifactState.CURRENT, ArtifactState.PREVIOUS), entry.promoted_at or 0.0, entry.generation)
