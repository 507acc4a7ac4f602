"""Requests that schemathesis makes from the description of the API: as it says, and against it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from tests.gateway.http.fuzz import JSON, Example, Sent, request_of

_WAITS = ("wait_s", "timeout_s")
_SHORT_SECONDS = 0.1


def generated(
    document: Mapping[str, Any], examples: Mapping[tuple[str, str], Example], token: str, count: int, random_seed: int
) -> Iterator[tuple[tuple[str, str], list[Sent]]]:
    """For each operation `count` requests that are as described and as many that are not.

    Every other one has the path of the example, so that it is about something that is there.
    """
    routes = {(method, path.replace(":path}", "}")): (method, path) for method, path in examples}
    schema: Any = schemathesis.openapi.from_dict(dict(document))
    for found in schema.get_all_operations():
        operation = found.ok()
        route = routes[operation.method.upper(), operation.path]
        cases = [
            case
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
            for case in _cases(operation.as_strategy(generation_mode=mode), count, random_seed)
        ]
        yield (
            route,
            [
                _sent(route[0], case, examples[route] if at % 2 else None, route[1], token)
                for at, case in enumerate(cases)
            ],
        )


def _cases(strategy: Any, count: int, random_seed: int) -> list[Any]:
    found: list[Any] = []

    @seed(random_seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def collect(case: Any) -> None:
        found.append(case)

    try:
        collect()
    except Unsatisfiable:
        return []  # of an operation that takes nothing, nothing is wrong
    return found


def _sent(method: str, case: Any, example: Example | None, path: str, token: str) -> Sent:
    kwargs = case.as_transport_kwargs(base_url="http://gateway")
    body = b""
    if "json" in kwargs:
        body = json.dumps(_soon(kwargs["json"])).encode()
    elif (data := kwargs.get("data")) is not None:
        body = data if isinstance(data, bytes) else str(data).encode()
    sent = request_of(method, path, replace(example or Example(), query=(), body=body or None), token)
    if example is None:
        sent = replace(sent, path=kwargs["url"].removeprefix("http://gateway").encode())
    query = _soon(kwargs.get("params") or {})
    headers = [one for one in sent.headers if one[0] != b"content-type"]
    if body:
        headers.append((b"content-type", (case.media_type or JSON).encode()))
    return replace(sent, query=urlencode(query, doseq=True, errors="replace").encode(), headers=tuple(headers))


def _soon(value: Any) -> Any:
    """The value with short waits: what is described may wait for minutes."""
    if not isinstance(value, dict):
        return value
    waits = {name: _SHORT_SECONDS for name in _WAITS if isinstance(value.get(name), int | float)}
    return {**value, **waits}
