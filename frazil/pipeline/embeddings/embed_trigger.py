"""Embed trigger: a table is embedded soon after its first rows, then at a cadence, and earlier when much is new."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.derived import TableTrigger, embedded_up_to, embeddings_table
from frazil.pipeline.embeddings.model_choice import model_of
from frazil.pipeline.settings import PipelineSettings
from frazil.registry import Job, submit_job
from frazil.requests import EMBED, EmbedRequest


@dataclass(frozen=True)
class _Run:
    """A run of a table: a finished one, or a submitted one."""

    at: datetime
    rows: int


class EmbedTrigger(TableTrigger):
    """Submits a run of each searched table that has something new, one at a time for a table.

    What was submitted is remembered in memory only: a run that fails is submitted again at the cadence, and once more
    after a start.
    """

    def __init__(self, lake: Lake, settings: PipelineSettings) -> None:
        super().__init__(lake, EMBED.name, is_on=settings.embed_seconds > 0)
        self._every = timedelta(seconds=settings.embed_seconds)
        self._after_rows = settings.embed_after_rows
        self._submitted: dict[str, _Run] = {}
        self._locations: Mapping[str, str] = {}

    def subjects(self, locations: Mapping[str, str]) -> Mapping[str, object]:
        self._locations = locations
        return locations

    def busy(self, jobs: Collection[Job]) -> Collection[str]:
        return [str(job.params.get("table")) for job in jobs]

    def judge(self, subject: str, now: datetime) -> bool:
        table = self._lake.table(subject, location=self._locations[subject])
        if not _is_embeddable(table) or table.snapshot_id is None:
            return True
        state = embedded_up_to(embeddings_table(self._lake, subject), model_of(table.spec))
        if state is not None and (state.table, state.snapshot_id) == (table.uuid, table.snapshot_id):
            return True
        runs = [self._submitted[subject]] if subject in self._submitted else []
        if state is not None and state.table == table.uuid:
            runs.append(_Run(state.at, state.rows))
        last = max(runs, key=lambda run: run.at, default=None)
        if last is None or now - last.at >= self._every or abs(table.rows - last.rows) >= self._after_rows:
            params = EmbedRequest(table=subject).params()
            submit_job(self._lake.registry, EMBED.name, subject, params, asked_by="cadence")
            self._submitted[subject] = _Run(now, table.rows)
        return False


def _is_embeddable(table: LakeTable) -> bool:
    spec = table.spec
    return spec.searched is not None and spec.kind in ("log", "entity")
