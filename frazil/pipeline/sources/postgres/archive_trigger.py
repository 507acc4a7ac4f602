"""Archive trigger: a source is archived each day at its time, whatever was restarted meanwhile."""

from __future__ import annotations

import contextlib
from datetime import datetime, time

from frazil.errors import Conflict
from frazil.pipeline.settings import SourceSettings
from frazil.registry import Registry, submit_job
from frazil.requests import POSTGRES, PostgresRequest

_ASKED = "archive/asked/"


class ArchiveTrigger:
    """Remembers in the registry the night that it submitted last."""

    def __init__(self, name: str, settings: SourceSettings, registry: Registry) -> None:
        self._name = name
        self._at = time.fromisoformat(settings.archive_at) if settings.archive_at else None
        self._registry = registry
        self._known = ""

    def poll(self, now: datetime) -> None:
        tonight = now.date().isoformat()
        if self._at is None or now.time() < self._at or self._known >= tonight:
            return
        key = _ASKED + self._name
        last = self._registry.get(key)
        if last is None or last.body.decode() < tonight:
            request = PostgresRequest(source=self._name, run_date=now.date())
            # In this order: a kill in between makes the night twice, the second in the place of the first, not never.
            submit_job(self._registry, POSTGRES.name, self._name, request.params(), asked_by="nightly")
            with contextlib.suppress(Conflict):
                self._registry.put(key, tonight.encode(), last.version if last else None)
        self._known = tonight
