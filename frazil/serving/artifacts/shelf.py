"""Shelf of a table: its artifacts on the bucket, and the one document of the registry that is the truth about them.

Every step is: the document first where something begins, last where something is complete. So whatever is killed,
files without an entry and entries without all files are known for what they are, and `tidy` removes them. Tags on the
objects follow the document; they are for people and for the store's own rules; nothing here is decided by them.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from frazil.crash import crash_point
from frazil.errors import Conflict, Misconfigured, NotFound, Unavailable
from frazil.registry import Registry, update_document
from frazil.serving.artifacts.manifest import MANIFEST, seal_of
from frazil.serving.artifacts.register import READABLE, ArtifactEntry, ArtifactState, Policy, Register, to_remove
from frazil.serving.artifacts.verify import verify_artifact
from frazil.serving.settings import SearchSettings
from frazil.storage import Objects, Warehouse, open_objects

PREFIX = "_artifacts"
"""Where artifacts lie in a warehouse; no namespace of tables begins with an underscore."""
_REGISTERS = "artifacts/"
_SIGN_OF_LIFE_SECONDS = 30.0
_FORGOTTEN_LEASES = 30


def open_shelf(registry: Registry, warehouse: Warehouse, table: str, settings: SearchSettings) -> Shelf:
    """The shelf of a table in this warehouse, by the rules of the settings; `documents` is the lake's registry."""
    policy = Policy(keep=settings.keep_artifacts, grace_seconds=settings.grace_seconds)
    return Shelf(registry, open_objects(warehouse, PREFIX), table, policy=policy)


def shelf_names(registry: Registry) -> list[str]:
    """All shelves that ever had an artifact."""
    return [document.key.removeprefix(_REGISTERS) for document in registry.list(_REGISTERS)]


@dataclass(frozen=True)
class Lease:
    """The artifacts that one server serves or is about to fetch."""

    reader: str
    generations: tuple[str, ...]
    at: float
    serving: str = ""
    """The one that answers; the others are on their way in or out."""


@dataclass(frozen=True)
class Tidied:
    removed: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    """Generations that only had files."""
    spared: tuple[str, ...] = ()
    """Due, but a reader holds them."""
    tagged: tuple[str, ...] = ()
    unfinished: int = 0
    """Uploads that were begun and never finished."""


class Shelf:
    """Methods block; any number of processes may have a shelf of the same table."""

    def __init__(
        self,
        registry: Registry,
        objects: Objects,
        table: str,
        *,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.table = table
        self.objects = objects
        self.policy = policy or Policy()
        self._registry = registry
        self._clock = clock
        self._key = _REGISTERS + table
        self._leases = f"artifact-reader/{table}/"

    def register(self) -> Register:
        document = self._registry.get(self._key)
        return Register(self.table) if document is None else Register.decode(self.table, document.body)

    def publish(self, folder: Path) -> ArtifactEntry:
        """Bring a built artifact to the bucket; it is a candidate then. What a kill leaves, `tidy` removes."""
        manifest = verify_artifact(folder, table=self.table)
        seal = seal_of((folder / MANIFEST).read_bytes())
        generation = manifest.generation
        self._change(lambda register: register.entered(manifest, seal, self._clock()))
        crash_point("artifact_entered")
        touched_at = self._clock()
        for path in (*(file.path for file in manifest.files), MANIFEST):
            if self._clock() - touched_at > _SIGN_OF_LIFE_SECONDS:
                touched_at = self._clock()
                self._change(lambda register: register.touched(generation, self._clock()))
            self.objects.put_file(self.key(generation, path), folder / path, tags=self._tags(generation, "building"))
            crash_point("artifact_file_uploaded")
        self._must_be_there(generation, {file.path: file.size for file in manifest.files} | {MANIFEST: seal.size})
        crash_point("artifact_uploaded")
        register = self._change(lambda register: register.published(generation, self._clock()))
        crash_point("artifact_published")
        self._tag(register)
        return register.named(generation)

    def promote(self, generation: str, *, going_back: bool = False) -> ArtifactEntry:
        """Make it current. Refused if it is older than the current one, or was withdrawn, unless `going_back`."""
        register = self._change(lambda register: register.promoted(generation, self._clock(), going_back=going_back))
        crash_point("artifact_promoted")
        self._tag(register)
        return register.named(generation)

    def rollback(self, reason: str, *, failed: str | None = None) -> ArtifactEntry | None:
        """Make the previous one current and withdraw the current one; returns what is current now.

        Several servers may find at once that a generation fails: with `failed` it is rolled back once.
        """
        register = self._change(lambda register: register.rolled_back(self._clock(), reason, failed=failed))
        crash_point("artifact_rolled_back")
        self._tag(register)
        return register.current

    def serve(self, reader: str, generations: Iterable[str], *, serving: str = "") -> Register:
        """Write the lease of this reader: what it holds, and which of these answers. It lasts `lease_seconds`.

        The register comes back as it is after that: what is readable in it stays until the lease ends.
        """
        lease = Lease(reader, tuple(generations), self._clock(), serving)
        update_document(self._registry, self._leases + reader, lambda _: msgspec.json.encode(lease))
        return self.register()

    def take(self, reader: str, generation: str, *, beside: Iterable[str] = (), serving: str = "") -> ArtifactEntry:
        """Hold this generation, beside those that are held already; `Conflict` if it is being removed."""
        entry = self.serve(reader, {generation, *beside}, serving=serving).named(generation)
        if entry.state not in READABLE:
            raise Conflict(f"the artifact {generation} is {entry.state.value}", code="artifact_incomplete")
        return entry

    def leave(self, reader: str) -> None:
        """It serves nothing any more."""
        document = self._registry.get(self._leases + reader)
        if document is not None:
            with contextlib.suppress(Conflict):
                self._registry.delete(document.key, document.version)

    def leases(self) -> list[Lease]:
        """Of all readers that are alive."""
        leases = [msgspec.json.decode(document.body, type=Lease) for document in self._registry.list(self._leases)]
        return [lease for lease in leases if self._clock() - lease.at <= self.policy.lease_seconds]

    def tidy(self) -> Tidied:
        """Remove what is due, and what the dead left behind. Nothing current or previous is ever touched.

        It may be killed anywhere and run by several at once: each run goes on from what is there.
        """
        unfinished = self.objects.sweep(older_than_seconds=self.policy.silent_seconds)
        # In this order: an artifact gets its entry before its first file, so one that is in the listing and not in the
        # register has none any more.
        there = self._listed()
        document = self._registry.get(self._key)
        if document is None:
            # Without a register nothing is known: its database may be new, and the files somebody's only copy.
            return Tidied(unfinished=unfinished)
        register = Register.decode(self.table, document.body)
        self._forget_readers()
        removed: list[str] = []
        spared: list[str] = []
        for entry in to_remove(register, self.policy, self._clock(), held=()):
            (removed if self._remove(entry) else spared).append(entry.generation)
        orphans = [name for name, (newest, _) in there.items() if self._is_orphan(register, name, newest)]
        for generation in orphans:
            self._delete_files(generation, there[generation][1])
            crash_point("artifact_orphan_deleted")
        tagged = self._tag(self.register())
        return Tidied(tuple(removed), tuple(orphans), tuple(spared), tuple(tagged), unfinished)

    def clear(self, table_id: str | None = None) -> None:
        """Remove every artifact, be it current or held: for a table that is purged; or only those of one table among
        several that had the name.

        A killed one is finished by saying it again. A builder that is at work finds itself given up, and what it still
        uploads is an orphan for `tidy`: the register stays, and is empty.
        """
        register = self._change(lambda register: register.all_doomed(self._clock(), table_id))
        doomed = {entry.generation for entry in register.entries if entry.state is ArtifactState.REMOVING}
        for generation, (_, keys) in self._listed().items():
            if table_id is None or generation in doomed:
                self._delete_files(generation, keys)
        crash_point("artifact_shelf_cleared")
        self._change(Register.without_doomed)

    def key(self, generation: str, path: str) -> str:
        return f"{self.table}/{generation}/{path}"

    def _remove(self, due: ArtifactEntry) -> bool:
        """First the register is changed, then the manifest goes, then the rest, then the entry."""
        now = self._clock()

        def doom(register: Register) -> Register:
            still = any(e.generation == due.generation for e in to_remove(register, self.policy, now, self._held()))
            return register.doomed(due.generation, now) if still else register

        entry = self._change(doom).find(due.generation)
        if entry is None or entry.state is not ArtifactState.REMOVING:
            return False
        crash_point("artifact_doomed")
        # A reader writes its lease before it reads the register, and the removal is in the register before the leases
        # are read: one of the two sees the other. There is no way back from here, as another process may be deleting
        # already; a reader that began before can finish.
        if due.generation in self._held():
            return False
        keys = [found.key for found in self.objects.list(self.key(due.generation, ""))]
        self._delete_files(due.generation, keys)
        crash_point("artifact_files_deleted")
        self._change(lambda register: register.removed(due.generation))
        return True

    def _delete_files(self, generation: str, keys: Iterable[str]) -> None:
        """The manifest goes first: from then on what is left does not look like an artifact."""
        self.objects.delete([self.key(generation, MANIFEST)])
        crash_point("artifact_manifest_deleted")
        for key in keys:
            self.objects.delete([key])
            crash_point("artifact_file_deleted")

    def _is_orphan(self, register: Register, generation: str, newest: float) -> bool:
        silent = self._clock() - newest > self.policy.silent_seconds
        return silent and register.find(generation) is None and generation not in self._held()

    def _listed(self) -> dict[str, tuple[float, list[str]]]:
        """By generation: when its newest file was written, and the keys of all."""
        found: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for item in self.objects.list(f"{self.table}/"):
            generation, _, path = item.key.removeprefix(f"{self.table}/").partition("/")
            if path:
                found[generation].append((item.modified_at, item.key))
        return {name: (max(files)[0], [key for _, key in files]) for name, files in found.items()}

    def _held(self) -> set[str]:
        return {generation for lease in self.leases() for generation in lease.generations}

    def _forget_readers(self) -> None:
        for document in self._registry.list(self._leases):
            lease = msgspec.json.decode(document.body, type=Lease)
            if self._clock() - lease.at > _FORGOTTEN_LEASES * self.policy.lease_seconds:
                with contextlib.suppress(Conflict):
                    self._registry.delete(document.key, document.version)

    def _must_be_there(self, generation: str, sizes: dict[str, int]) -> None:
        prefix = self.key(generation, "")
        there = {found.key.removeprefix(prefix): found.size for found in self.objects.list(prefix)}
        if there != sizes:
            raise Unavailable(
                f"the bucket does not have the files of {generation} as they were sent", code="artifact_upload_torn"
            )

    def _tags(self, generation: str, state: str) -> dict[str, str]:
        return {"frazil-state": state, "frazil-table": self.table, "frazil-generation": generation}

    def _tag(self, register: Register) -> list[str]:
        """Tag what is tagged otherwise. The manifest comes last, and so bears witness for all files."""
        changed = []
        for entry in register.entries:
            wanted = self._tags(entry.generation, entry.state.value)
            # The register has moved already and this is only information: the next `tidy` makes up for it.
            with contextlib.suppress(NotFound, Unavailable, Misconfigured):
                tags = self.objects.tags(self.key(entry.generation, MANIFEST))
                if tags is None:
                    return []
                if tags == wanted:
                    continue
                keys = [found.key for found in self.objects.list(self.key(entry.generation, ""))]
                for key in sorted(keys, key=lambda key: key.endswith(f"/{MANIFEST}")):
                    self.objects.tag(key, wanted)
                    crash_point("artifact_object_tagged")
                changed.append(entry.generation)
        return changed

    def _change(self, step: Callable[[Register], Register]) -> Register:
        """Put the register through one step, as it is at this moment."""
        result = Register(self.table)

        def next_body(body: bytes | None) -> bytes | None:
            nonlocal result
            before = Register(self.table) if body is None else Register.decode(self.table, body)
            result = step(before)
            return None if result == before else result.encode()

        update_document(self._registry, self._key, next_body)
        return result
