"""Freshness as requests state it."""

from __future__ import annotations

from typing import ClassVar

import pytest

from frazil.errors import InvalidInput
from frazil.events import Token
from frazil.requests import FreshnessSpec, FreshRequest, RequestWords, decode_request
from frazil.requests.freshness import parse_time


class ReadRequest(FreshRequest, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords("a read", "bad_read", "a read is an object")


def test_defaults() -> None:
    request = decode_request({}, ReadRequest)
    assert (request.timeout_s, request.reads) == (30.0, FreshnessSpec())
    assert (request.reads.freshness, request.reads.min_token, request.reads.wait_when_behind) == (
        "live",
        Token(),
        False,
    )


def test_a_token_is_read_when_the_request_is() -> None:
    token = Token.of("main.notes", "a-stream", 7)
    request = decode_request({"min_token": str(token), "freshness": "committed", "when_behind": "wait"}, ReadRequest)
    assert request.reads == FreshnessSpec("committed", token, wait_when_behind=True)
    with pytest.raises(InvalidInput, match="not a freshness token") as caught:
        decode_request({"min_token": "fzt1.no"}, ReadRequest)
    assert caught.value.code == "bad_token"


@pytest.mark.parametrize("text", ["", "soon", "2026-11-03", "2026-11-03T09:30:00", "9" * 100])
def test_a_time_has_its_zone(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a time with its zone") as caught:
        parse_time(text)
    assert (caught.value.code, caught.value.hint) == ("bad_time", "as in 2026-11-03T09:30:00Z")
    assert parse_time("2026-11-03T09:30:00Z").tzinfo is not None
