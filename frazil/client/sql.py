"""SQL: the body of a query request, and its answer in one of the formats of the server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx

from frazil.client.transport import JsonObject, given, not_frazil
from frazil.errors import InvalidInput

Time = datetime | str


@dataclass(frozen=True)
class EncodedAnswer:
    """An answer as the server encoded it, in one of its formats."""

    facts: Mapping[str, Any]
    """The JSON answer; for `json` with its columns and rows."""
    content: bytes = field(repr=False)


def query_body(
    text: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None,
    as_of: Time | Mapping[str, Time] | None,
    **others: Any,
) -> JsonObject:
    return given(sql=text, parameters=_parameters(parameters), as_of=_times(as_of), **others)


def read_encoded_answer(response: httpx.Response, format: str, path: str) -> EncodedAnswer:
    try:
        facts = json.loads(response.content if format == "json" else response.headers["Frazil-Answer"])
    except (KeyError, ValueError) as error:
        raise not_frazil(path) from error
    if not isinstance(facts, dict):
        raise not_frazil(path)
    return EncodedAnswer(facts, response.content)


def _parameters(values: Sequence[Any] | Mapping[str, Any] | None) -> list[Any] | dict[str, Any] | None:
    if values is None or isinstance(values, Mapping):
        return dict(values) if values else None
    if isinstance(values, str | bytes):
        raise InvalidInput(
            "parameters are a list or a dictionary, not text", code="bad_parameters", hint="pass [value]"
        )
    return list(values) or None


def _times(as_of: Time | Mapping[str, Time] | None) -> str | dict[str, str] | None:
    if as_of is None:
        return None
    return {table: _time(at) for table, at in as_of.items()} if isinstance(as_of, Mapping) else _time(as_of)


def _time(at: Time) -> str:
    if isinstance(at, str):
        return at
    if at.tzinfo is None:
        raise InvalidInput(
            f"the time {at.isoformat()} has no time zone",
            code="time_without_zone",
            hint="pass datetime(…, tzinfo=UTC), or datetime.now().astimezone()",
        )
    return at.isoformat()
