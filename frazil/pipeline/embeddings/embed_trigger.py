"""When a table is embedded by itself: soon after its first rows, then at a cadence, and earlier when much is new."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from frazil.errors import FrazilError
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.derived import embedded_up_to, embeddings_table
from frazil.pipeline.embeddings.ask import KIND, EmbedAsk, model_of
from frazil.pipeline.settings import PipelineSettings
from frazil.registry import open_jobs, submit_job

log = logging.getLogger(__name__)
_LOOK = timedelta(seconds=5)


@dataclass(frozen=True)
class _Run:
    """A run of a table: one that came to its end, or one that was asked for."""

    at: datetime
    rows: int


class EmbedTrigger:
    """Asks for a run of each searched table that has something new, one at a time for a table.

    What was asked for is remembered in memory only: a run that fails is asked for again at the cadence, and once more
    after a start.
    """

    def __init__(self, lake: Lake, settings: PipelineSettings) -> None:
        self._lake = lake
        self._every = timedelta(seconds=settings.embed_seconds)
        self._after_rows = settings.embed_after_rows
        self._looked_at: datetime | None = None
        self._asked: dict[str, _Run] = {}
        self._settled: dict[str, str] = {}
        """Metadata files of tables that need nothing until they change."""

    def poll(self, now: datetime) -> None:
        if not self._every or (self._looked_at is not None and now - self._looked_at < _LOOK):
            return
        self._looked_at = now
        locations = self._lake.locations()
        self._settled = {name: known for name, known in self._settled.items() if locations.get(name) == known}
        changed = [name for name in locations if name not in self._settled]
        if not changed:
            return
        busy = {job.params.get("table") for job in open_jobs(self._lake.registry, [KIND])}
        for name in changed:
            if name in busy:
                continue
            try:
                self._judge(name, locations[name], now)
            except FrazilError as error:
                # One table that cannot be read is no reason to forget the others.
                log.warning("cannot tell whether %s is to be embedded: %s", name, error)
                if not error.transient:
                    self._settled[name] = locations[name]

    def _judge(self, name: str, location: str, now: datetime) -> None:
        table = self._lake.table(name, location=location)
        if not _is_embeddable(table) or table.snapshot_id is None:
            self._settled[name] = location
            return
        state = embedded_up_to(embeddings_table(self._lake, name), model_of(table.spec))
        if state is not None and (state.table, state.snapshot_id) == (table.uuid, table.snapshot_id):
            self._settled[name] = location
            return
        runs = [self._asked[name]] if name in self._asked else []
        if state is not None and state.table == table.uuid:
            runs.append(_Run(state.at, state.rows))
        last = max(runs, key=lambda run: run.at, default=None)
        if last is None or now - last.at >= self._every or abs(table.rows - last.rows) >= self._after_rows:
            submit_job(self._lake.registry, KIND, name, EmbedAsk(name).params(), asked_by="cadence")
            self._asked[name] = _Run(now, table.rows)


def _is_embeddable(table: LakeTable) -> bool:
    spec = table.spec
    return spec.searched is not None and spec.kind in ("log", "entity")
