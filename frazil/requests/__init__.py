"""Requests: every request of callers, declared once for HTTP, the client and the CLI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.requests.build import BuildRequest as BuildRequest
    from frazil.requests.build import BuildTurn as BuildTurn
    from frazil.requests.decode import Refusal as Refusal
    from frazil.requests.decode import Request as Request
    from frazil.requests.decode import RequestWords as RequestWords
    from frazil.requests.decode import decode_request as decode_request
    from frazil.requests.embed import EmbedRequest as EmbedRequest
    from frazil.requests.freshness import DEFAULT_FRESHNESS as DEFAULT_FRESHNESS
    from frazil.requests.freshness import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
    from frazil.requests.freshness import MAX_TIMEOUT_S as MAX_TIMEOUT_S
    from frazil.requests.freshness import MIN_TIMEOUT_S as MIN_TIMEOUT_S
    from frazil.requests.freshness import Freshness as Freshness
    from frazil.requests.freshness import FreshnessSpec as FreshnessSpec
    from frazil.requests.freshness import FreshRequest as FreshRequest
    from frazil.requests.freshness import Waiting as Waiting
    from frazil.requests.freshness import WhenBehind as WhenBehind
    from frazil.requests.job_request import JobRequest as JobRequest
    from frazil.requests.jobs import BUILD as BUILD
    from frazil.requests.jobs import CSV as CSV
    from frazil.requests.jobs import EMBED as EMBED
    from frazil.requests.jobs import JOB_KINDS as JOB_KINDS
    from frazil.requests.jobs import MAINTENANCE as MAINTENANCE
    from frazil.requests.jobs import POSTGRES as POSTGRES
    from frazil.requests.jobs import TRIAL as TRIAL
    from frazil.requests.jobs import JobKind as JobKind
    from frazil.requests.load import LoadRequest as LoadRequest
    from frazil.requests.load import Tolerance as Tolerance
    from frazil.requests.maintenance import MaintenanceRequest as MaintenanceRequest
    from frazil.requests.postgres import PostgresRequest as PostgresRequest
    from frazil.requests.profile import ProfileRequest as ProfileRequest
    from frazil.requests.query import DEFAULT_MAX_ROWS as DEFAULT_MAX_ROWS
    from frazil.requests.query import MAX_ROWS as MAX_ROWS
    from frazil.requests.query import Format as Format
    from frazil.requests.query import QueryRequest as QueryRequest
    from frazil.requests.repair import RepairRequest as RepairRequest
    from frazil.requests.search import DEFAULT_K as DEFAULT_K
    from frazil.requests.search import MAX_FILTER as MAX_FILTER
    from frazil.requests.search import MAX_K as MAX_K
    from frazil.requests.search import MAX_OFFSET as MAX_OFFSET
    from frazil.requests.search import Group as Group
    from frazil.requests.search import Mode as Mode
    from frazil.requests.search import SearchRequest as SearchRequest
    from frazil.requests.table import AlterTableRequest as AlterTableRequest
    from frazil.requests.table import ChecksRequest as ChecksRequest
    from frazil.requests.table import ChunkingRequest as ChunkingRequest
    from frazil.requests.table import ColumnRequest as ColumnRequest
    from frazil.requests.table import CreateTableRequest as CreateTableRequest
    from frazil.requests.table import TableSearchRequest as TableSearchRequest
    from frazil.requests.token import MASK as MASK
    from frazil.requests.token import MAX_GRANTS as MAX_GRANTS
    from frazil.requests.token import GrantRequest as GrantRequest
    from frazil.requests.token import RotationRequest as RotationRequest
    from frazil.requests.token import TokenRequest as TokenRequest
    from frazil.requests.trial import MAX_TRIALS as MAX_TRIALS
    from frazil.requests.trial import EvalQuestion as EvalQuestion
    from frazil.requests.trial import TrialRequest as TrialRequest
    from frazil.requests.trial import bad_trial as bad_trial

__getattr__, __all__ = lazy_door(__name__)
