"""Answers held against the API's own description: status, media type, body and code of each operation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.gateway.http.fuzz import JSON, Got

# What is answered before a route is found.
_NO_ROUTE = {401: "unauthorized", 404: "no_such_route", 405: "method_not_allowed", 429: "rate_limited"}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS_ONLY = {"title", "description", "default"}


class Description:
    """The document of GET /v1/openapi.json."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.operations: dict[tuple[str, str], dict[str, Any]] = {
            (method.upper(), path): operation
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }

    def fault_of(self, method: str, route: str | None, got: Got) -> str | None:
        """What of an answer is not as described; None where all of it is. `route` is that of the application."""
        path = re.sub(r":path\}", "}", route or "")
        operation = self.operations.get(("GET" if method == "HEAD" else method, path))
        if operation is None:
            expected = _NO_ROUTE.get(got.status)
            return None if got.code == expected else f"{got.status} {got.code} where there is no operation"
        response = operation["responses"].get(str(got.status))
        if response is None:
            return f"status {got.status} ({got.code}) is not described"
        media = got.headers.get("content-type", "").partition(";")[0]
        if media not in response["content"]:
            return f"media type {media} of status {got.status} is not described"
        if got.status >= 400 and got.code not in response["x-codes"]:
            return f"code {got.status} {got.code} is not described"
        if media != JSON or method == "HEAD":
            return None
        return self.mismatch(json.loads(got.body), response["content"][JSON]["schema"])

    def request_fault(self, method: str, path: str, body: Any) -> str | None:
        """What of a JSON body is not as described."""
        described = self.operations[method, re.sub(r":path\}", "}", path)].get("requestBody")
        if described is None:
            return None if body is None else "a body is not described"
        return self.mismatch(body, described["content"][JSON]["schema"])

    def mismatch(self, value: Any, schema: Mapping[str, Any], at: str = "$") -> str | None:
        """The first place where a value does not fit a JSON schema; a keyword that is not known here raises."""
        for keyword, wanted in schema.items():
            if keyword in _WORDS_ONLY:
                continue
            if fault := self._judged(keyword, wanted, value, schema, at):
                return fault
        return None

    def _judged(self, keyword: str, wanted: Any, value: Any, schema: Mapping[str, Any], at: str) -> str | None:
        match keyword:
            case "$ref":
                name = wanted.removeprefix("#/components/schemas/")
                return self.mismatch(value, self.document["components"]["schemas"][name], at)
            case "anyOf":
                faults = [self.mismatch(value, one, at) for one in wanted]
                return None if None in faults else f"{at} fits none: {faults}"
            case "properties" if isinstance(value, dict):
                return _first(
                    self.mismatch(value[name], one, f"{at}.{name}") for name, one in wanted.items() if name in value
                )
            case "additionalProperties" if isinstance(value, dict):
                others = {name: one for name, one in value.items() if name not in schema.get("properties", {})}
                if wanted is False:
                    return f"{at} has {sorted(others)}" if others else None
                return _first(self.mismatch(one, wanted, f"{at}.{name}") for name, one in others.items())
            case "items" if isinstance(value, list):
                return _first(self.mismatch(one, wanted, f"{at}[{number}]") for number, one in enumerate(value))
        return None if _fits(keyword, wanted, value) else f"{at} = {str(value)[:80]!r}: not {keyword} {wanted}"


def _first(faults: Any) -> str | None:
    return next(filter(None, faults), None)


def _fits(keyword: str, wanted: Any, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match keyword:
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            return any(
                isinstance(value, _TYPES[one]) and (one == "boolean" or (value is not True and value is not False))
                for one in kinds
            )
        case "required":
            return not isinstance(value, dict) or set(wanted) <= value.keys()
        case "enum":
            return value in wanted
        case "minimum":
            return not is_number or value >= wanted
        case "maximum":
            return not is_number or value <= wanted
        case "minLength" | "minItems" | "minProperties":
            return not hasattr(value, "__len__") or len(value) >= wanted
        case "maxLength" | "maxItems" | "maxProperties":
            return not hasattr(value, "__len__") or len(value) <= wanted
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "format" if wanted == "date":
            return not isinstance(value, str) or re.fullmatch(r"\d{4}-\d\d-\d\d", value) is not None
        case "properties" | "additionalProperties" | "items":
            return True  # of a value of another type
    raise NotImplementedError(keyword)
