"""The description of the API, as far as it can be judged without a gateway. `test_fuzz.py` holds answers against it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import frazil
from frazil.gateway.http.app import create_app
from frazil.gateway.http.middleware import OPEN
from frazil.gateway.http.openapi import describe
from tests.gateway.http.described import Description

SOURCES = sorted(Path(frazil.__file__).parent.rglob("*.py"))
_DECLARED_BY = ("operation", "job_operation")
_DECLARING = ("operation.py", "openapi.py")


@pytest.fixture(scope="module")
def description() -> Description:
    app: Any = create_app(MagicMock())
    return Description(json.loads(msgspec.json.encode(describe(app._app.routes))))


def _texts(node: ast.AST) -> Iterator[str]:
    """All literal texts below a node, except those that declare operations."""
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.AnnAssign)
            and isinstance(child.annotation, ast.Name)
            and child.annotation.id == "Errors"
        ):
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in _DECLARED_BY:
            continue
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        yield from _texts(child)


def test_every_code_that_is_described_is_one_that_is_answered(description: Description) -> None:
    known = {text for path in SOURCES if path.name not in _DECLARING for text in _texts(ast.parse(path.read_text()))}
    codes = {
        code
        for operation in description.operations.values()
        for response in operation["responses"].values()
        for code in response.get("x-codes", ())
    }
    assert len(codes) > 100
    assert codes - known == set()


def test_requests_are_described_with_their_limits(description: Description) -> None:
    schemas = description.document["components"]["schemas"]
    search = schemas["SearchRequest"]
    assert search["additionalProperties"] is False
    assert schemas["QueryRequest"]["required"] == ["sql"]
    assert description.mismatch({"table": "notes", "query": "tea", "k": 1_000}, search) is None
    assert description.mismatch({"table": "notes", "query": "tea", "k": 1_001}, search) is not None
    assert description.mismatch({"table": "notes", "quer": "tea"}, search) is not None
    grants = {"name": "a", "grants": ["sql", {"scope": "read:notes", "mask": {"a": "hash"}}]}
    assert description.mismatch(grants, schemas["TokenRequest"]) is None
    assert description.mismatch({**grants, "grants": [{"mask": ["a"]}]}, schemas["TokenRequest"]) is not None


def test_tables_are_described_with_all_their_parts(description: Description) -> None:
    schemas = description.document["components"]["schemas"]
    declared = {"name": "t", "columns": {"a": "long", "b": {"type": "string", "checks": {"not_null": True}}}}
    assert description.mismatch(declared, schemas["CreateTableRequest"]) is None
    wrong = {"name": "t", "columns": {"b": {"type": "string", "checks": {"not_nul": True}}}}
    assert description.mismatch(wrong, schemas["CreateTableRequest"]) is not None
    assert description.mismatch({"search": {"chunk": {"size": 1}}}, schemas["AlterTableRequest"]) is not None


def test_what_answers_without_a_token_says_so(description: Description) -> None:
    is_open = {path for (_, path), operation in description.operations.items() if "security" in operation}
    assert is_open == set(OPEN)


def test_every_reference_leads_somewhere(description: Description) -> None:
    text = json.dumps(description.document)
    names = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert names <= description.document["components"]["schemas"].keys()


def test_a_route_without_a_declaration_is_refused() -> None:
    async def handler(request: Request) -> Response:
        return Response()

    with pytest.raises(TypeError, match="/v1/nothing declares no operation"):
        describe([Route("/v1/nothing", handler)])
