"""Job submission: a checked request becomes a job of the pipeline."""

from __future__ import annotations

import asyncio

from frazil.access import Forbidden, Identity
from frazil.gateway.gateway import Gateway
from frazil.gateway.health import PartsHealth
from frazil.registry import Job, submit_job
from frazil.requests import JobKind, JobRequest


async def submit(
    gateway: Gateway,
    kind: JobKind,
    request: JobRequest,
    identity: Identity,
    *,
    subject: str | None = None,
    without_pipeline: str | None = None,
) -> Job:
    """Leave the job for the pipeline. `without_pipeline` is the hint for a caller while there is none."""
    if kind.subject is not None:
        subject = getattr(request, kind.subject)
    assert subject is not None, "a kind without a field for it is given its subject"
    _check_scope(kind, subject, identity)
    parts = PartsHealth(gateway)
    parts.pipeline_must_be_there(**({} if without_pipeline is None else {"hint": without_pipeline}))
    registry = gateway.lake.registry
    return await asyncio.to_thread(submit_job, registry, kind.name, subject, request.params(), asked_by=identity.id)


def _check_scope(kind: JobKind, subject: str, identity: Identity) -> None:
    if kind.scope == "admin":
        identity.require_admin()
    elif not identity.may_ingest(subject):
        short = subject.removeprefix("main.")
        raise Forbidden(f"this needs a token with the scope ingest:{short}", hint="ask the admin for such a token")
