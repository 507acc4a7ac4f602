"""Build trigger: a table is built soon after its first rows, then at a cadence, and earlier when much is new."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from frazil.errors import NotFound
from frazil.events.declaration import history_of
from frazil.lake.catalog import Lake, LakeTable, load_entity
from frazil.lake.derived import TableTrigger
from frazil.registry import Job, job_status, submit_job
from frazil.requests import BUILD, BuildRequest
from frazil.serving.artifacts.register import ArtifactEntry
from frazil.serving.artifacts.shelf import Shelf, open_shelf
from frazil.serving.builds.model_choice import is_searched, model_of
from frazil.serving.builds.readiness import is_declared_alike, unchanged_since, was_withdrawn
from frazil.serving.index_choice import PREFIX as CHOICES
from frazil.serving.index_choice import chosen_index
from frazil.serving.profiles import Profile, Profiles
from frazil.serving.settings import SearchSettings

_LONGEST = timedelta(days=1)
_MOST_DOUBLINGS = 20


@dataclass(frozen=True)
class _SubmittedBuild:
    """The last build of a shelf that was submitted."""

    job: str
    at: datetime
    unbuilt: Unbuilt
    current: str | None
    """The generation that was current then."""
    failures: int = 0


@dataclass(frozen=True)
class Unbuilt:
    """What a table has that an artifact has not."""

    rows: int
    commits: int

    def since(self, submitted: _SubmittedBuild | None, entry: ArtifactEntry | None) -> Unbuilt:
        """The same without what was there when a build was submitted that made no other artifact."""
        if submitted is None or (entry is not None and entry.generation != submitted.current):
            return self
        return Unbuilt(self.rows - submitted.unbuilt.rows, self.commits - submitted.unbuilt.commits)


class BuildTrigger(TableTrigger):
    """Submits a build of each shelf that has something new, one at a time for a shelf.

    What was submitted is remembered in memory only. A build that fails is submitted again at the cadence, and each time
    it fails after twice as long.
    """

    def __init__(self, lake: Lake, settings: SearchSettings) -> None:
        super().__init__(lake, BUILD.name, is_on=settings.build_seconds > 0)
        self._settings = settings
        self._every = timedelta(seconds=settings.build_seconds)
        self._submitted: dict[str, _SubmittedBuild] = {}
        self._locations: Mapping[str, str] = {}
        self._shelves: dict[str, tuple[str, Profile | None]] = {}
        """The table of each shelf, and the profile where it has one of its own."""

    def subjects(self, locations: Mapping[str, str]) -> Mapping[str, object]:
        chosen = {one.key.rpartition("/")[2]: one.version for one in self._lake.registry.list(CHOICES)}
        profiles = [one for one in Profiles(self._lake.registry).list() if one.shelf != one.table]
        self._locations = locations
        self._shelves = {name: (name, None) for name in locations}
        self._shelves |= {one.shelf: (one.table, one) for one in profiles if one.table in locations}
        return {
            shelf: (locations[name], locations.get(history_of(name)), repr(profile), chosen.get(shelf))
            for shelf, (name, profile) in self._shelves.items()
        }

    def busy(self, jobs: Collection[Job]) -> Collection[str]:
        building = {(job.params.get("table"), job.params.get("profile")) for job in jobs}
        return [shelf for shelf, (name, profile) in self._shelves.items() if (name, _name(profile)) in building]

    def judge(self, subject: str, now: datetime) -> bool:
        shelf, (name, profile) = subject, self._shelves[subject]
        table = self._lake.table(name, location=self._locations[name])
        if not is_searched(table.spec):
            return True
        submitted = self._after(shelf)
        opened = open_shelf(self._lake.registry, self._lake.warehouse, shelf, self._settings)
        entry = opened.register().current
        if was_withdrawn(opened, table) and not self._is_unfolded(table):
            return True
        unbuilt = self._unbuilt(table, entry, opened, model_of(table.spec, profile))
        if unbuilt is None:
            return True
        if not self._is_due(entry, submitted, unbuilt, now):
            return False
        params = BuildRequest(table=name, profile=_name(profile)).params()
        job = submit_job(self._lake.registry, BUILD.name, name, params, asked_by="cadence")
        self._submitted[shelf] = _SubmittedBuild(
            job.id,
            now,
            unbuilt,
            entry.generation if entry else None,
            submitted.failures if submitted is not None else 0,
        )
        return False

    def _after(self, shelf: str) -> _SubmittedBuild | None:
        """The last build that was submitted, with what became of it."""
        submitted = self._submitted.get(shelf)
        if submitted is None or not submitted.job:
            return submitted
        try:
            status = job_status(self._lake.registry, submitted.job)
        except NotFound:
            return submitted
        if following := status.get("continued_by"):
            submitted = replace(submitted, job=following)
        elif status["state"] in ("failed", "done"):
            submitted = replace(
                submitted, job="", failures=submitted.failures + 1 if status["state"] == "failed" else 0
            )
        self._submitted[shelf] = submitted
        return submitted

    def _is_due(
        self, entry: ArtifactEntry | None, submitted: _SubmittedBuild | None, unbuilt: Unbuilt, now: datetime
    ) -> bool:
        if submitted is not None and submitted.failures:
            return now - submitted.at >= min(
                self._every * (1 << min(submitted.failures - 1, _MOST_DOUBLINGS)), _LONGEST
            )
        times = [] if submitted is None else [submitted.at]
        if entry is not None:
            times.append(datetime.fromtimestamp(entry.entered_at, UTC))
        if not times or now - max(times) >= self._every:
            return True
        new = unbuilt.since(submitted, entry)
        many_rows, many_commits = self._settings.build_after_rows, self._settings.build_after_commits
        return bool(many_rows and new.rows >= many_rows) or bool(many_commits and new.commits >= many_commits)

    def _unbuilt(self, table: LakeTable, entry: ArtifactEntry | None, shelf: Shelf, model: str) -> Unbuilt | None:
        """What is new since the artifact; None if nothing is."""
        fed = load_entity(self._lake, table.name).history if table.spec.kind == "entity" else table
        if fed.snapshot_id is None:
            return None
        if entry is None or entry.cut.table_id != table.uuid or entry.model is None or entry.model.name != model:
            return Unbuilt(fed.rows, len(fed.snapshots()))
        if table.spec.kind == "entity":
            is_same = fed.watermark <= entry.cut.watermark and unchanged_since(table, entry.cut.snapshot_id)
        else:
            is_same = unchanged_since(table, entry.cut.snapshot_id)
        choice = chosen_index(self._lake.registry, shelf.table, model)
        if choice is not None and datetime.fromisoformat(choice.at).timestamp() > entry.entered_at:
            is_same = False
        if is_same and is_declared_alike(shelf, entry, table.spec, model):
            return None
        return unbuilt_since(fed, entry)

    def _is_unfolded(self, table: LakeTable) -> bool:
        """Whether an entity has events that are not in its base yet: what is built then was never withdrawn."""
        return table.spec.kind == "entity" and load_entity(self._lake, table.name).unfolded_rows > 0


def unbuilt_since(fed: LakeTable, entry: ArtifactEntry) -> Unbuilt:
    """What was committed since the artifact was cut, as far as the remaining snapshots show."""
    commits, before = 0, 0
    for snapshot in fed.snapshots():
        is_known = snapshot.watermark is not None and snapshot.watermark <= entry.cut.watermark
        if snapshot.snapshot_id == entry.cut.snapshot_id or (is_known and entry.cut.base_snapshot_id is not None):
            before = snapshot.total_rows
            break
        commits += snapshot.operation != "replace"
    else:
        before = entry.counts.rows
    return Unbuilt(abs(fed.rows - before), commits)


def _name(profile: Profile | None) -> str | None:
    return None if profile is None else profile.name
