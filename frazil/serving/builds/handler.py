"""Build jobs, from request to report: fold, embed, build, publish, promote, announce. A second run finishes the first.

Until an artifact is promoted the one before it is current. What a kill leaves of an unfinished one, on this machine or
on the bucket, is removed by the builds and the clean-ups that come after.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from frazil.crash import crash_point
from frazil.errors import Conflict, FrazilError, Unavailable
from frazil.lake.catalog import Lake, LakeTable
from frazil.registry import Job, ProgressCallback, job_status, open_jobs, submit_job
from frazil.requests import BUILD, BuildTurn
from frazil.serving.artifacts.manifest import MANIFEST, Manifest, decode_manifest, new_generation
from frazil.serving.artifacts.register import ArtifactEntry
from frazil.serving.artifacts.shelf import Shelf, open_shelf
from frazil.serving.artifacts.write import workplace
from frazil.serving.builds.kept_vectors import NAMES, keep
from frazil.serving.builds.model_choice import model_of, must_be_of
from frazil.serving.builds.plan import BuildOrder
from frazil.serving.builds.readiness import BuildInput, build_input, is_built, planned, wanted_index
from frazil.serving.child_tasks import ChildCancelled, ChildCodes, ChildTasks
from frazil.serving.profiles import Profile, Profiles
from frazil.serving.settings import SearchSettings

log = logging.getLogger(__name__)

KEPT = "kept"
"""Below the folder of builds: the vectors that they keep, a folder for each shelf."""
_CODES = ChildCodes("build_process_lost", "build_process_killed", "build_out_of_memory")
_LOOK_SECONDS = 0.1
_ROUNDS = 3
_TURN_SECONDS = 60.0
"""After so long a build that waits for its vectors lets others go first, if any wait."""


@dataclass(frozen=True)
class BuildServices:
    """Services of other rooms for a build."""

    fold: Callable[[str], None]
    """Fold all of an entity's history that is there."""
    embed: Callable[[LakeTable, str], Job]
    """Submit an embed job of this model over the table."""
    announce: Callable[[str, str], None]
    """Announce a new generation to the servers of a shelf."""


class BuildHandler:
    """Runs the jobs of kind `build`, one at a time."""

    def __init__(
        self,
        lake: Lake,
        settings: SearchSettings,
        folder: Path,
        services: BuildServices,
        *,
        turn_seconds: float = _TURN_SECONDS,
    ) -> None:
        self.lake = lake
        self.settings = settings
        self.folder = folder
        self.services = services
        self.turn_seconds = turn_seconds
        self.tasks = ChildTasks(_CODES)

    def cancel(self) -> None:
        self.tasks.cancel()

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        try:
            with self.tasks.job():
                return _Run(self, job, BuildTurn.parse(job.params), report_progress).run()
        except ChildCancelled:
            raise Unavailable("the build was cancelled", code="build_given_up", hint="it is done again") from None


class WaitsForVectors(Exception):
    """Its vectors take longer than a turn."""

    def __init__(self, embedding: str) -> None:
        super().__init__(embedding)
        self.embedding = embedding


class _Run:
    """One try of one job."""

    def __init__(self, builds: BuildHandler, job: Job, request: BuildTurn, report_progress: ProgressCallback) -> None:
        self._builds = builds
        self._lake = builds.lake
        self._job = job
        self._request = request
        self._report_progress = report_progress
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        table = self._lake.table(self._request.table)
        profile = None if self._request.profile is None else Profiles(self._lake.registry).get(self._request.profile)
        if profile is not None:
            must_be_of(profile, table.spec)
        model = model_of(table.spec, profile)
        name = table.name if profile is None else profile.shelf
        described = {"table": table.spec.short_name, "shelf": name.removeprefix("main."), "model": model}
        if table.snapshot_id is None and table.spec.kind != "entity":
            return {**described, "built": False, "because": "the table has no rows yet", "complete": True}
        self._fold(table)
        try:
            found = self._embedded(model)
        except WaitsForVectors as waiting:
            rest = structs.replace(self._request, embedding=waiting.embedding)
            next_job = submit_job(
                self._lake.registry, BUILD.name, self._job.subject, rest.params(), asked_by=self._job.asked_by
            )
            return {**described, "built": False, "complete": False, "continued_by": next_job.id}
        if found is None:
            return {**described, "built": False, "because": "the table has no rows yet", "complete": True}
        shelf = open_shelf(self._lake.registry, self._lake.warehouse, name, self._builds.settings)
        return {**described, **self._build(found, shelf, profile), "complete": True}

    def _fold(self, table: LakeTable) -> None:
        if table.spec.kind == "entity":
            began = time.monotonic()
            self._builds.services.fold(table.name)
            self._took("fold", began)
        crash_point("build_folded")

    def _embedded(self, model: str) -> BuildInput | None:
        """The newest snapshot of which every chunk is known; None for a table that has none."""
        began = time.monotonic()
        embedding = self._request.embedding
        for number in range(_ROUNDS):
            table = self._lake.table(self._request.table)
            if table.snapshot_id is None:
                return None
            found = build_input(self._lake, table, model, newest_only=number == 0)
            if found is not None:
                self._took("embed", began)
                return found
            self._wait_for(embedding or self._builds.services.embed(table, model).id)
            embedding = None
        raise Unavailable(
            f"{self._request.table} changes faster than it can be embedded",
            code="build_overtaken",
            hint="it is tried again; keep more snapshots (pipeline.snapshot_budget)",
        )

    def _wait_for(self, embedding: str) -> None:
        crash_point("build_embedding_asked")
        while True:
            status = job_status(self._lake.registry, embedding)
            if status["state"] == "failed":
                error = status["error"]
                # Not as what may pass: it was tried several times already.
                raise FrazilError(
                    f"the text could not be embedded: {error['message']}",
                    code=error["code"],
                    hint=error["hint"],
                    details=error.get("details"),
                )
            if status["state"] == "done":
                if status.get("continued_by") is None:
                    return
                embedding = status["continued_by"]
                continue
            self._builds.tasks.check()
            progress = status.get("progress") or {}
            if "looked_at" in progress:
                self._report_progress({"embedded_rows": progress["looked_at"], "of": progress.get("of", 0)})
            if time.monotonic() - self._began > self._builds.turn_seconds and self._others_wait():
                raise WaitsForVectors(embedding)
            time.sleep(_LOOK_SECONDS)

    def _others_wait(self) -> bool:
        return any(job.id != self._job.id for job in open_jobs(self._lake.registry, [BUILD.name]))

    def _build(self, found: BuildInput, shelf: Shelf, profile: Profile | None) -> dict[str, Any]:
        builds = self._builds
        kept = builds.folder / KEPT / shelf.table
        index = wanted_index(self._lake, shelf.table, found.model.name, profile)
        plan = planned(self._lake, found, shelf.table, index=index, vss=builds.settings.duckdb_vss, kept=kept)
        if not self._request.force and (current := is_built(shelf, plan, found.table)) is not None:
            return {"built": False, "because": "nothing has changed since", **_entry_fields(current), **self._times()}
        with workplace(builds.folder / "work") as place:
            crash_point("build_begun")
            order = BuildOrder(plan, place, new_generation())
            report = builds.tasks.run(order, report_progress=self._report_progress)
            self._seconds |= report["seconds"]
            manifest = decode_manifest((order.artifact / MANIFEST).read_bytes())
            entry = self._published(shelf, order.artifact)
            self._keep(kept, order, manifest)
        is_current = self._promoted(shelf, entry)
        self._tidy(shelf)
        return {
            "built": True,
            "is_current": is_current,
            **_entry_fields(entry),
            "vectors_kept": report["taken"]["kept"],
            "vectors_read": report["taken"]["read"],
            "index": manifest.index,
            "files": {file.path: file.size for file in manifest.files},
            **self._times(),
        }

    def _published(self, shelf: Shelf, folder: Path) -> ArtifactEntry:
        began = time.monotonic()
        crash_point("build_before_publish")
        entry = shelf.publish(folder)
        self._took("publish", began)
        return entry

    def _keep(self, kept: Path, order: BuildOrder, manifest: Manifest) -> None:
        with suppress(OSError):  # it only saves time
            keep(kept, order.artifact, order.spill / NAMES, manifest, order.plan.origin)

    def _promoted(self, shelf: Shelf, entry: ArtifactEntry) -> bool:
        """Whether it is current now, and not one that another built of newer rows meanwhile."""
        try:
            shelf.promote(entry.generation)
        except Conflict as conflict:
            if conflict.code != "artifact_older":
                raise
            return False
        crash_point("build_promoted")
        try:
            self._builds.services.announce(shelf.table, entry.generation)
        except FrazilError as error:
            # Servers look by themselves every few seconds; it is not worth a build.
            log.warning("artifact announcement failed of %s of %s: %s", entry.generation, shelf.table, error)
        return True

    def _tidy(self, shelf: Shelf) -> None:
        try:
            shelf.tidy()
        except FrazilError as error:
            log.warning("artifact clean-up failed of %s: %s", shelf.table, error)

    def _took(self, step: str, began: float) -> None:
        self._seconds[step] = round(self._seconds.get(step, 0.0) + time.monotonic() - began, 3)

    def _times(self) -> dict[str, Any]:
        return {"seconds": round(time.monotonic() - self._began, 3), "steps": self._seconds}


def _entry_fields(entry: ArtifactEntry) -> dict[str, Any]:
    counts = entry.counts
    return {
        "generation": entry.generation,
        "snapshot_id": entry.cut.snapshot_id,
        "watermark": entry.cut.watermark,
        "version": entry.model.version if entry.model else None,
        "dims": entry.model.dims if entry.model else None,
        "rows": counts.rows,
        "documents": counts.documents,
        "chunks": counts.chunks,
        "vectors": counts.vectors,
        "quarantined": counts.quarantined,
        "bytes": entry.size,
    }
