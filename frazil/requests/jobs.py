"""Job kinds: the one list of the work that the pipeline does on request.

`runtime/job_handlers.py` maps each kind to who does it; HTTP submits and the runner serves by this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from frazil.requests.build import BuildRequest
from frazil.requests.embed import EmbedRequest
from frazil.requests.job_request import JobRequest
from frazil.requests.load import LoadRequest
from frazil.requests.maintenance import MaintenanceRequest
from frazil.requests.postgres import PostgresRequest
from frazil.requests.trial import TrialRequest


@dataclass(frozen=True)
class JobKind:
    name: str
    request: type[JobRequest]
    path: str
    """Where HTTP takes its requests. `{table}`: the table is in the path and not in the body."""
    lane: str
    """Jobs of one lane are done one after the other."""
    subject: str | None = "table"
    """The field of the request that names what the job is about; None: whoever submits it says so."""
    scope: Literal["admin", "ingest"] = "admin"
    """The scope that a token needs: `ingest` is that of the table."""
    gives_way: bool = False
    """Whether it waits, and is cancelled and done again, while commits are behind."""
    summed: tuple[str, ...] = ()
    """The figures of its result that add up when another job continues it."""


CSV = JobKind("csv", LoadRequest, "/v1/loads/csv", lane="load", scope="ingest")
POSTGRES = JobKind("postgres", PostgresRequest, "/v1/loads/postgres", lane="load", subject="source")
# A build waits for its embedding, and neither for a load or a trial that takes an hour.
EMBED = JobKind(
    "embed",
    EmbedRequest,
    "/v1/tables/{table}/embed",
    lane="embed",
    summed=("rows", "chunks", "known", "reused", "embedded", "quarantined", "published", "seconds"),
)
BUILD = JobKind("build", BuildRequest, "/v1/tables/{table}/build", lane="build")
TRIAL = JobKind("trial", TrialRequest, "/v1/tables/{table}/trials", lane="trial")
MAINTENANCE = JobKind(
    "maintenance",
    MaintenanceRequest,
    "/v1/tables/{table}/maintenance",
    lane="maintenance",
    subject=None,
    gives_way=True,
)

JOB_KINDS = {kind.name: kind for kind in (CSV, POSTGRES, EMBED, BUILD, TRIAL, MAINTENANCE)}
