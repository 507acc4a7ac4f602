"""Asking the pipeline for maintenance: a document in the registry asks, another one answers.

Whoever asks and the pipeline may be on different machines; the catalog is what they share. A request stays until its
answer is written, so that a pipeline which dies amid the work leaves it to the next one.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from frazil.errors import Conflict, NotFound
from frazil.lake.registry import Registry

_REQUEST = "maintenance/request/"
_RESULT = "maintenance/result/"
_STATE = "maintenance/state/"
_RESULT_KEPT = timedelta(days=1)


@dataclass(frozen=True)
class Request:
    id: str
    table: str
    what: str
    sort: tuple[str, ...]
    asked_at: datetime


def ask_upkeep(registry: Registry, table: str, what: str, *, sort: tuple[str, ...] = ()) -> Request:
    """Leave a request for the pipeline."""
    now = datetime.now(UTC)
    # Sorts by time: requests are served in the order in which they came.
    request = Request(f"{now.timestamp():017.6f}-{uuid.uuid4().hex[:8]}", table, what, sort, now)
    registry.put(_REQUEST + request.id, msgspec.json.encode(request), None)
    return request


def waiting_requests(registry: Registry) -> list[Request]:
    """The requests without an answer, oldest first."""
    return [msgspec.json.decode(document.body, type=Request) for document in registry.list(_REQUEST)]


def answer_request(registry: Registry, request: Request, result: dict[str, Any]) -> None:
    """Write the answer, then take the request away; answers of the past go with it."""
    body = {"id": request.id, "at": datetime.now(UTC), **result}
    with contextlib.suppress(Conflict):  # an earlier pipeline died after this very line
        registry.put(_RESULT + request.id, msgspec.json.encode(body), None)
    asked = registry.get(_REQUEST + request.id)
    if asked is not None:
        registry.delete(asked.key, asked.version)
    for old in registry.list(_RESULT):
        if msgspec.json.decode(old.body, type=_Dated).at < datetime.now(UTC) - _RESULT_KEPT:
            with contextlib.suppress(Conflict):
                registry.delete(old.key, old.version)


def request_result(registry: Registry, request_id: str) -> dict[str, Any] | None:
    """The answer; None while the request waits or is at work. One that nobody knows is `NotFound`."""
    # In this order: an answer is written before its request goes, so that one of the two is always seen.
    asked = registry.get(_REQUEST + request_id)
    found = registry.get(_RESULT + request_id)
    if found is not None:
        return msgspec.json.decode(found.body, type=dict[str, Any])
    if asked is None:
        raise NotFound("no maintenance was asked for under this id", code="request_not_found")
    return None


class _Dated(msgspec.Struct):
    at: datetime


@dataclass(frozen=True)
class Upkept:
    """When a table was last looked after; its snapshots do not tell, because they expire."""

    compacted_at: datetime | None = None
    orphans_sought_at: datetime | None = None


def upkept(registry: Registry, table_uuid: str) -> Upkept:
    found = registry.get(_STATE + table_uuid)
    return Upkept() if found is None else msgspec.json.decode(found.body, type=Upkept)


def remember_upkeep(registry: Registry, table_uuid: str, state: Upkept) -> None:
    found = registry.get(_STATE + table_uuid)
    with contextlib.suppress(Conflict):  # another pipeline did the same work at the same moment
        registry.put(_STATE + table_uuid, msgspec.json.encode(state), found.version if found else None)
