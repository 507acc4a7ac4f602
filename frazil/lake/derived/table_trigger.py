"""Table trigger: submits the jobs that changes of tables make due, as embeddings and builds."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from frazil.errors import FrazilError
from frazil.lake.catalog import Lake
from frazil.registry import Job, open_jobs

log = logging.getLogger(__name__)
_POLL_SECONDS = 5.0


class TableTrigger(ABC):
    """Judges each subject, a table or what is derived of it, again when what it depends on has changed.

    A subject that has an open job is left alone. One that cannot be judged does not keep the others waiting.
    """

    def __init__(self, lake: Lake, kind: str, *, is_on: bool) -> None:
        self._lake = lake
        self._kind = kind
        self._is_on = is_on
        self._polled_at: datetime | None = None
        self._settled: dict[str, object] = {}
        """What subjects that need nothing depend on, as it was; until it changes."""

    @abstractmethod
    def subjects(self, locations: Mapping[str, str]) -> Mapping[str, object]:
        """What each subject depends on. `locations` are the metadata files of all tables."""

    @abstractmethod
    def busy(self, jobs: Collection[Job]) -> Collection[str]:
        """The subjects that these open jobs are about."""

    @abstractmethod
    def judge(self, subject: str, now: datetime) -> bool:
        """Submit a job if one is due; whether nothing will be due before something changes."""

    def poll(self, now: datetime) -> None:
        if not self._is_on:
            return
        if self._polled_at is not None and now - self._polled_at < timedelta(seconds=_POLL_SECONDS):
            return
        self._polled_at = now
        subjects = self.subjects(self._lake.locations())
        self._settled = {name: known for name, known in self._settled.items() if subjects.get(name) == known}
        changed = [name for name in subjects if name not in self._settled]
        if not changed:
            return
        busy = set(self.busy(open_jobs(self._lake.registry, [self._kind])))
        for name in changed:
            if name not in busy and self._is_settled(name, now):
                self._settled[name] = subjects[name]

    def _is_settled(self, subject: str, now: datetime) -> bool:
        try:
            return self.judge(subject, now)
        except FrazilError as error:
            log.warning("%s trigger cannot judge %s: %s", self._kind, subject, error)
            return not error.transient
