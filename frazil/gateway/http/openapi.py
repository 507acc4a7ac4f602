"""GET /v1/openapi.json: the description of every route, made from what each declares beside its handler."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.gateway.http.operation import JSON, Errors, Fields, OfTable, Operation, fields, operation
from frazil.gateway.http.query_parameters import only
from frazil.requests import ChecksRequest, ChunkingRequest, ColumnRequest, GrantRequest, TableSearchRequest

_SCHEMAS = "#/components/schemas/{name}"
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
# Errors before any route: the token, its rate and quotas, the shape of the request, and what nobody foresaw.
_EVERYWHERE: Errors = {
    400: ("bad_request", "two_authorizations"),
    408: ("request_timeout", "headers_timeout"),
    414: ("url_too_long",),
    422: ("unknown_parameter",),
    431: ("headers_too_large",),
    499: ("client_gone",),
    500: ("internal",),
    503: ("unavailable", "stopping", "too_many_connections"),
}
_WITH_TOKEN: Errors = {
    401: ("unauthorized",),
    429: ("rate_limited", "too_many_requests_in_flight"),
    500: ("catalog_damaged",),
    503: ("tokens_unavailable", "overloaded", "request_over", "lake_unavailable", "registry_busy"),
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "hint"],
            "properties": {
                "code": {"type": "string", "description": "For programs: it stays as it is."},
                "message": {"type": "string", "description": "What happened."},
                "hint": {"type": "string", "description": "What to do about it."},
                "details": {},
            },
        }
    },
}
# Parts of requests, which their fields refer to by name.
_PARTS = (GrantRequest, ColumnRequest, ChecksRequest, TableSearchRequest, ChunkingRequest)
_DESCRIPTION = (
    "Events in, SQL and search out. Every error is `{error: {code, message, hint, details?}}`; the codes of an "
    "operation are in `x-codes` of each status."
)


def description_route(routes: Sequence[Route]) -> Route:
    """The route of the document, which has itself in it."""
    described: list[Route] = list(routes)
    document = cache(lambda: msgspec.json.encode(describe(described)))
    own = Route("/v1/openapi.json", partial(show, document), methods=["GET"])
    described.append(own)
    return own


@operation("This document", "status", {200: fields(openapi=str, info=dict, paths=dict, components=dict)})
async def show(document: Callable[[], bytes], request: Request) -> Response:
    """The same for every valid token."""
    only(request)
    return Response(document(), media_type=JSON)


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """The document of these routes; each has a declared operation, or this raises."""
    operations = [(route, method, operation_of(route)) for route in routes for method in _methods(route)]
    types = [part for _, _, declared in operations for part in _types(declared)]
    encoded, components = msgspec.json.schema_components([*types, *_PARTS], ref_template=_SCHEMAS)
    schemas = _Schemas(types, encoded, components)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route, method, declared in operations:
        paths[_PATH_PARAMETER.sub(r"{\1}", route.path)][method.lower()] = _operation(route, declared, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "frazil", "version": version("frazil"), "description": _DESCRIPTION},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "schemas": {"Error": _ERROR, **components},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def operation_of(route: Route) -> Operation:
    declared = getattr(_handler(route), "operation", None)
    if not isinstance(declared, Operation):
        raise TypeError(f"the handler of {route.path} declares no operation")
    return declared


def _handler(route: Route) -> Callable[..., Any]:
    """The function behind a route, without what it is called with."""
    endpoint: Any = route.endpoint
    return endpoint.func if isinstance(endpoint, partial) else endpoint


def errors_of(declared: Operation) -> dict[int, list[str]]:
    """The codes that an operation may answer, by status."""
    found: dict[int, list[str]] = defaultdict(list)
    for errors in (_EVERYWHERE, {} if declared.is_open else _WITH_TOKEN, *declared.errors):
        for status, codes in errors.items():
            found[status] += [code for code in codes if code not in found[status]]
    return dict(sorted(found.items()))


class _Schemas:
    """The JSON schema of each type, as it was made for all of them at once."""

    def __init__(
        self, types: Sequence[Any], schemas: Sequence[dict[str, Any]], components: dict[str, dict[str, Any]]
    ) -> None:
        self._components = components
        self._known = {_key(one): schema for one, schema in zip(types, schemas, strict=False)}

    def of(self, described: Any) -> dict[str, Any]:
        if isinstance(described, OfTable):
            whole = self._components[described.request.__name__]
            properties = {name: one for name, one in whole["properties"].items() if name != "table"}
            return {**whole, "properties": properties, "required": [one for one in whole["required"] if one != "table"]}
        if isinstance(described, list):
            return {"type": "array", "items": self.of(described[0])}
        if isinstance(described, dict):
            return {"type": "object", "additionalProperties": self.of(described[str])}
        if not isinstance(described, Fields):
            return self._known[_key(described)]
        properties = {name: self.of(one) for name, one in {**described.required, **described.optional}.items()}
        schema = {"type": "object", "properties": properties, "required": list(described.required)}
        return schema if described.has_others else {**schema, "additionalProperties": False}


def _key(described: Any) -> str:
    """Types are compared as they are written: `list[str]` is another object each time."""
    return repr(described)


def _types(declared: Operation) -> Iterator[Any]:
    """All types that an operation names."""
    for described in (*declared.answers.values(), *([] if declared.body is None else [declared.body])):
        yield from _inside(described)
    for parameter in declared.query:
        yield parameter.type


def _inside(described: Any) -> Iterator[Any]:
    if isinstance(described, OfTable):
        yield described.request
        return
    if isinstance(described, Fields):
        parts = (*described.required.values(), *described.optional.values())
    elif isinstance(described, list | dict):
        parts = (described[0] if isinstance(described, list) else described[str],)
    else:
        yield described
        return
    for one in parts:
        yield from _inside(one)


def _methods(route: Route) -> list[str]:
    return sorted((route.methods or set()) - {"HEAD"})


def _operation(route: Route, declared: Operation, schemas: _Schemas) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_PARAMETER.findall(route.path)
    ]
    in_query = [
        {"name": one.name, "in": "query", "required": one.required, "schema": schemas.of(one.type)}
        for one in declared.query
    ]
    handler = _handler(route)
    described: dict[str, Any] = {
        "operationId": f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}",
        "summary": declared.summary,
        "tags": [declared.tag],
        "parameters": in_path + in_query,
        "responses": {**_answers(declared, schemas), **_errors(declared)},
    }
    if declared.body is not None or declared.takes != (JSON,):
        content = {media: {"schema": _body_schema(declared, media, schemas)} for media in declared.takes}
        described["requestBody"] = {"required": declared.body_required, "content": content}
    if declared.is_open:
        described["security"] = [{}, {"token": []}]
    return described


def _body_schema(declared: Operation, media: str, schemas: _Schemas) -> dict[str, Any]:
    return schemas.of(declared.body) if media == JSON and declared.body is not None else {}


def _answers(declared: Operation, schemas: _Schemas) -> dict[str, Any]:
    found = {}
    for status, described in declared.answers.items():
        content = {media: {"schema": schemas.of(described) if media == JSON else {}} for media in declared.gives}
        found[str(status)] = {"description": "Success", "content": content}
    return found


def _errors(declared: Operation) -> dict[str, Any]:
    schema = {"$ref": _SCHEMAS.format(name="Error")}
    return {
        str(status): {"description": ", ".join(codes), "content": {JSON: {"schema": schema}}, "x-codes": codes}
        for status, codes in errors_of(declared).items()
    }
