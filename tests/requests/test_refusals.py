"""Wrong bodies of each kind of request: the status, code, words and hint of each are recorded in `refusals.jsonl`.

Programs read codes and people read hints: a change of one is a change of the interface, and shows here as a diff.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from frazil.access import parse_grants
from frazil.errors import InvalidInput
from frazil.requests import (
    QueryRequest,
    RepairRequest,
    RotationRequest,
    SearchRequest,
    TokenRequest,
    decode_request,
)
from frazil.serving import parse_profile

RECORDED = [json.loads(line) for line in Path(__file__).with_name("refusals.jsonl").read_text().splitlines()]
QUERY = {"sql": "SELECT 1"}
SEARCH = {"table": "notes", "query": "tea"}
AT = "2026-11-03T09:30:00Z"


def _token(body: Any) -> object:
    request = decode_request(body, TokenRequest)
    return parse_grants(request.grants), request.expiry(datetime.now(UTC))


DECODERS: dict[str, Callable[[Any], object]] = {
    "query": lambda body: decode_request(body, QueryRequest),
    "search": lambda body: decode_request(body, SearchRequest),
    "profile": lambda body: parse_profile("fast", body),
    "token": _token,
    "rotate": lambda body: decode_request(body, RotationRequest),
    "repair": lambda body: decode_request(body, RepairRequest),
}


@pytest.mark.parametrize("kind", DECODERS)
def test_refusals_are_as_recorded(kind: str) -> None:
    recorded = [(body, tuple(told)) for of, body, *told in RECORDED if of == kind]
    assert len(recorded) >= 10
    for body, told in recorded:
        with pytest.raises(InvalidInput) as caught:
            DECODERS[kind](body)
        error = caught.value
        assert (error.status, error.code, error.message, error.hint) == told, body


@pytest.mark.parametrize(
    ("kind", "body", "status", "code"),
    [
        ("query", {"sql": "x" * 100_001}, 413, "sql_too_large"),
        ("query", {"sql": "é" * 50_001}, 413, "sql_too_large"),
        ("query", {**QUERY, "parameters": [1] * 1_001}, 422, "bad_parameters"),
        ("query", {**QUERY, "parameters": {str(at): 1 for at in range(1_001)}}, 422, "bad_parameters"),
        ("query", {**QUERY, "as_of": {f"t{at}": AT for at in range(101)}}, 422, "bad_query"),
        ("query", {**QUERY, "min_token": "fzt1." + "a" * 20_000}, 422, "bad_token"),
        ("search", {**SEARCH, "query": "x" * 10_001}, 413, "query_too_large"),
        ("search", {**SEARCH, "vector": [1] * 16_385}, 422, "bad_vector"),
        ("search", {**SEARCH, "filter": "x" * 10_001}, 422, "bad_filter"),
        ("search", {**SEARCH, "fields": {f"c{at}": 1 for at in range(201)}}, 422, "bad_search"),
        ("search", {**SEARCH, "fields": [f"c{at}" for at in range(201)]}, 422, "bad_search"),
        ("profile", {"table": "notes", "filter": "x" * 10_001}, 422, "bad_profile"),
    ],
)
def test_what_is_too_long_is_refused(kind: str, body: Any, status: int, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        DECODERS[kind](body)
    assert (caught.value.status, caught.value.code) == (status, code)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("query", {**QUERY, "parameters": {"a": 1}, "as_of": {"notes": AT, "a.b": "20261103T0930+01:00"}}),
        ("query", {**QUERY, "parameters": [], "snapshot": {"notes": 1, "others": "9223372036854775807"}}),
        ("query", {**QUERY, "as_of": AT, "timeout_s": 0.5, "format": None, "max_rows": 1_000_000}),
        ("search", {**SEARCH, "vector": [1, -2.5], "weights": {"text": 0}, "snippet": False, "columns": []}),
        ("search", {"profile": "fast", "vector": [1], "fields": {"a": 1}, "min_score": -1, "snippet": 0}),
        ("profile", {"table": "notes", "name": "fast", "index": "flat", "columns": ["a"], "mode": None}),
        ("token", {"name": "a", "grants": ["sql", {"scope": "read:notes", "mask": ["a"], "where": None}]}),
        ("rotate", {}),
        ("repair", {"what": "watermark", "accept_loss": None}),
    ],
)
def test_what_is_right_is_taken(kind: str, body: Any) -> None:
    DECODERS[kind](body)


def test_a_search_is_read_as_meant() -> None:
    search = decode_request(
        {**SEARCH, "fields": ["a", "b"], "columns": ["x", "x"], "filter": " y > 1 ", "group": "chunk"}, SearchRequest
    )
    assert (search.table_name, search.field_weights) == ("main.notes", {"a": 1.0, "b": 1.0})
    assert (search.shown_columns, search.condition, search.by_document) == (("x",), "y > 1", False)
    assert search.snippet_characters == 200
    assert decode_request({**SEARCH, "snippet": 7}, SearchRequest).snippet_characters == 7


def test_a_query_is_read_as_meant() -> None:
    moment = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)
    query = decode_request({**QUERY, "as_of": {"notes": AT}, "snapshot": {"a.b": "7"}}, QueryRequest)
    assert (query.reads.as_of, query.reads.as_of_table) == (None, {"main.notes": moment})
    assert query.reads.snapshot == {"a.b": 7}
    assert decode_request({**QUERY, "as_of": AT}, QueryRequest).reads.as_of == moment
