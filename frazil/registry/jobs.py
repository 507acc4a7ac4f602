"""Jobs: work for the pipeline, as documents of the registry until it has a result.

The caller and the pipeline may be on different machines; the catalog is what they share. A job stays open until its
result is written, so that a pipeline which dies amid the work leaves it to the next one.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from frazil.errors import Conflict, NotFound
from frazil.registry.documents import Registry

_OPEN = "job/open/"
_PROGRESS = "job/progress/"
_DONE = "job/done/"
_DONE_KEPT = timedelta(days=7)

ProgressCallback = Callable[[Mapping[str, Any]], None]
"""Receives the progress of a job, which is shown to users."""


@dataclass(frozen=True)
class Job:
    id: str
    kind: str
    """One of `frazil.requests.jobs.JOB_KINDS`."""
    subject: str
    """What it is about, for people: a table, a source."""
    asked_at: datetime
    asked_by: str = ""
    """The id of the token that submitted the job, or the name of the trigger. Submitters take turns."""
    params: dict[str, Any] = field(default_factory=dict)


def submit_job(registry: Registry, kind: str, subject: str, params: dict[str, Any], *, asked_by: str = "") -> Job:
    """Submit a job to the pipeline."""
    now = datetime.now(UTC)
    # Sorts by time: the jobs of one caller are served in the order in which they came.
    job = Job(f"{now.timestamp():017.6f}-{uuid.uuid4().hex[:8]}", kind, subject, now, asked_by, params)
    registry.put(_OPEN + job.id, msgspec.json.encode(job), None)
    return job


def open_jobs(registry: Registry, kinds: Collection[str] | None = None) -> list[Job]:
    """The jobs without a result, oldest first."""
    found = [msgspec.json.decode(document.body, type=Job) for document in registry.list(_OPEN)]
    return [job for job in found if kinds is None or job.kind in kinds]


def set_progress(registry: Registry, job: Job, progress: Mapping[str, Any]) -> None:
    """Write the progress of the job; dropped if another write happens at the same moment."""
    known = registry.get(_PROGRESS + job.id)
    with contextlib.suppress(Conflict):
        registry.put(_PROGRESS + job.id, msgspec.json.encode(progress), known.version if known else None)


def finish_job(registry: Registry, job: Job, result: dict[str, Any]) -> None:
    """Write the result, then close the job; results of long ago go with it."""
    body = {"at": datetime.now(UTC), **_described(job), **result}
    with contextlib.suppress(Conflict):  # an earlier pipeline died after this very line
        registry.put(_DONE + job.id, msgspec.json.encode(body), None)
    for key in (_OPEN + job.id, _PROGRESS + job.id):
        if (document := registry.get(key)) is not None:
            with contextlib.suppress(Conflict):
                registry.delete(key, document.version)
    for old in registry.list(_DONE):
        if msgspec.json.decode(old.body, type=_Dated).at < datetime.now(UTC) - _DONE_KEPT:
            with contextlib.suppress(Conflict):
                registry.delete(old.key, old.version)


def job_status(registry: Registry, job_id: str) -> dict[str, Any]:
    """The state of a job: `state` is waiting, running, done or failed. `NotFound` for an unknown id."""
    # In this order: a result is written before its job is closed, so that one of the two is always seen.
    asked = registry.get(_OPEN + job_id)
    progress = registry.get(_PROGRESS + job_id)
    done = registry.get(_DONE + job_id)
    if done is not None:
        return msgspec.json.decode(done.body, type=dict[str, Any])
    if asked is None:
        raise NotFound("no job has this id", code="job_not_found", hint="list the jobs with `frazil jobs`")
    described = _described(msgspec.json.decode(asked.body, type=Job))
    if progress is None:
        return {**described, "state": "waiting"}
    return {**described, "state": "running", "progress": msgspec.json.decode(progress.body)}


def list_jobs(registry: Registry) -> list[dict[str, Any]]:
    """All jobs that are open or were done lately, newest first."""
    ids = {document.key.rpartition("/")[2] for prefix in (_OPEN, _DONE) for document in registry.list(prefix)}
    found = []
    for job_id in sorted(ids, reverse=True):
        with contextlib.suppress(NotFound):  # forgotten since it was listed
            found.append(job_status(registry, job_id))
    return found


def _described(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "subject": job.subject,
        "asked_at": job.asked_at.isoformat(),
        "asked_by": job.asked_by,
    }


class _Dated(msgspec.Struct):
    at: datetime
