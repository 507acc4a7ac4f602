"""Operations of the API: parameters, bodies and answers of a route, declared beside its handler.

The declaration changes nothing in how a request is served. `openapi.py` makes the document of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from starlette.routing import Route

from frazil.requests import JobKind, Request

JSON = "application/json"
Errors = Mapping[int, tuple[str, ...]]
"""The codes of each status."""

JsonObject = dict[str, Any]
JsonObjects = list[JsonObject]
Integers = list[int]
Rows = list[list[Any]]
Texts = list[str]

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


@dataclass(frozen=True)
class Parameter:
    """A parameter of the query string."""

    name: str
    type: Any = str
    required: bool = False


@dataclass(frozen=True)
class Fields:
    """The fields of a JSON object by name and type. A type is also `[Fields]`, a list of such objects, or
    `{str: Fields}`, objects by name."""

    required: Mapping[str, Any] = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)
    has_others: bool = True
    """Whether other fields may be there too."""


@dataclass(frozen=True)
class OfTable:
    """A request whose `table` is in the path, not in the body."""

    request: type[Request]


@dataclass(frozen=True)
class Operation:
    summary: str
    tag: str
    answers: Mapping[int, Any]
    """What each status of success answers: a type, or `Fields`."""
    query: tuple[Parameter, ...] = ()
    body: Any = None
    """A request, `OfTable` or `Fields`; None where there is no JSON body."""
    body_required: bool = True
    takes: tuple[str, ...] = (JSON,)
    """The media types of the body."""
    gives: tuple[str, ...] = (JSON,)
    """The media types of the answer."""
    errors: tuple[Errors, ...] = ()
    """Beyond those that every operation has."""
    is_open: bool = False
    """Whether it answers without a token."""


def operation(
    summary: str,
    tag: str,
    answers: Mapping[int, Any],
    *errors: Errors,
    query: tuple[Parameter, ...] = (),
    body: Any = None,
    body_required: bool = True,
    takes: tuple[str, ...] = (JSON,),
    gives: tuple[str, ...] = (JSON,),
    is_open: bool = False,
) -> Callable[[_Handler], _Handler]:
    """Declare what the handler takes and answers."""

    def declare(handler: _Handler) -> _Handler:
        declared = Operation(summary, tag, answers, query, body, body_required, takes, gives, errors, is_open)
        handler.__dict__["operation"] = declared
        return handler

    return declare


def job_operation(
    summary: str, kind: JobKind, *errors: Errors, table_in_path: bool = False, **more: Any
) -> Callable[[_Handler], _Handler]:
    """Declare a handler that submits a job of this kind: its body is the request, its answer 202 with the id."""
    body = OfTable(kind.request) if table_in_path else kind.request
    more = {"body": body} | more
    return operation(summary, "jobs", {202: JOB_ACCEPTED}, FORBIDDEN, BODY, TABLE, PIPELINE, *errors, **more)


def route(method: str, path: str, handler: Callable[..., Any], *parts: Any) -> Route:
    """The route of a handler, which is called with these parts and the request."""
    return Route(path, partial(handler, *parts), methods=[method])


def fields(**types: Any) -> Fields:
    """An object with these fields, and maybe others."""
    return Fields(required=types)


def exactly(**types: Any) -> Fields:
    """An object with these fields and no others."""
    return Fields(required=types, has_others=False)


JOB_ACCEPTED = exactly(id=str, state=str, subject=str)
# What follows from how a request is read; `openapi.py` adds what every operation may answer.
FORBIDDEN: Errors = {403: ("forbidden",)}
PARAMETER: Errors = {422: ("bad_parameter",)}
TABLE: Errors = {
    404: ("table_not_found", "foreign_table", "history_missing"),
    409: ("table_moved",),
    422: ("bad_table_name",),
    500: ("metadata_damaged", "metadata_missing", "watermark_torn", "bus_gap", "bus_replaced"),
    503: ("table_moved_on", "bus_unavailable", "warming"),
}
BODY: Errors = {
    408: ("body_timeout",),
    413: ("body_too_large",),
    415: ("unsupported_encoding",),
    422: ("bad_json", "bad_encoding", "body_incomplete", "unknown_field"),
    429: ("too_many_waits", "too_many_bytes_in_flight"),
}
PIPELINE: Errors = {503: ("pipeline_unavailable",)}
SQL: Errors = {
    404: ("snapshot_not_found", "before_first_snapshot"),
    409: ("token_of_another_stream", "token_beyond_head", "events_lost"),
    410: ("snapshot_expired",),
    413: ("answer_too_large", "out_of_memory"),
    422: (
        "bad_sql",
        "conversion_failed",
        "function_not_allowed",
        "query_failed",
        "snapshot_before_token",
        "sql_refused",
    ),
    429: ("too_many_waits",),
    500: ("query_failed",),
    503: (
        "no_query_workers",
        "busy",
        "files_unreadable",
        "cut_moved",
        "schema_moved",
        "table_replaced",
        "tail_too_long",
        "visibility_timeout",
        "audit_unavailable",
    ),
    504: ("query_timeout", "visibility_timeout"),
}
"""Of what the query workers run."""
FILTER: Errors = {
    422: (
        "bad_sql",
        "conversion_failed",
        "function_not_allowed",
        "invalid_input",
        "query_failed",
        "sql_refused",
        "unknown_column",
    ),
    500: ("query_failed",),
    503: ("busy", "no_query_workers"),
    504: ("query_timeout",),
}
"""Of a condition in SQL that is tried before it is kept."""
