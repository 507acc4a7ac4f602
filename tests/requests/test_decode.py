"""The one translator of requests: what it accepts, and the code, words and hint of what it refuses."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pytest
from msgspec import Meta

from frazil.errors import InvalidInput
from frazil.requests import Refusal, Request, RequestWords, decode_request

Colour = Literal["white", "blue"]


class IceRequest(Request, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        "an order", "bad_order", "an order is an object with `ice`", '{"ice": "x"}'
    )

    ice: Annotated[str, Meta(max_length=5)]
    blocks: Annotated[int, Meta(ge=1, le=5_000)] = 1
    weight: Annotated[float, Meta(ge=0.5, le=2_000)] = 1.0
    colour: Colour | None = None
    crushed: bool = False
    notes: tuple[str, ...] = ()
    day: Annotated[str, Meta(pattern="^[0-9]+$"), Refusal("{value} is no day", "as 12", "bad_day")] | None = None
    extra: dict[str, int] | None = None

    def __post_init__(self) -> None:
        if self.crushed and self.blocks > 1:
            raise InvalidInput("crushed ice has no blocks", code="bad_order")


def refused(body: Any) -> tuple[str, str, str]:
    with pytest.raises(InvalidInput) as caught:
        decode_request(body, IceRequest)
    return caught.value.code, caught.value.message, caught.value.hint


def test_null_means_the_default() -> None:
    assert decode_request({"ice": "x", "blocks": None, "weight": 2}, IceRequest) == IceRequest(ice="x", weight=2.0)
    assert decode_request({"ice": "x", "notes": ["a"]}, IceRequest).notes == ("a",)


@pytest.mark.parametrize(
    "body", [None, 7, [], "x", {}, {"ice": None}, {"ice": 7}, {"ice": None, "icee": 1}, {"ice": "123456"}]
)
def test_what_every_request_has_comes_first(body: Any) -> None:
    assert refused(body) == ("bad_order", "an order is an object with `ice`", '{"ice": "x"}')


def test_unknown_fields() -> None:
    assert refused({"ice": "x", "block": 3}) == (
        "unknown_field",
        "an order has no field 'block'",
        "did you mean 'blocks'?",
    )
    code, message, hint = refused({"ice": "x", "q" * 100: 3, "blocks": 0})
    assert (code, message) == ("unknown_field", f"an order has no field {'q' * 80!r}")
    assert hint == "its fields are ice, blocks, weight, colour, crushed, notes, day, extra"


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"blocks": 0}, "`blocks` is a whole number from 1 to 5,000", ""),
        ({"blocks": 1.0}, "`blocks` is a whole number from 1 to 5,000", ""),
        ({"blocks": True}, "`blocks` is a whole number from 1 to 5,000", ""),
        ({"blocks": 10**400}, "`blocks` is a whole number from 1 to 5,000", ""),
        ({"weight": "1"}, "`weight` is a number from 0.5 to 2,000", ""),
        ({"weight": float("nan")}, "`weight` is a number from 0.5 to 2,000", ""),
        ({"weight": 10**400}, "`weight` is a number from 0.5 to 2,000", ""),
        ({"colour": "r" * 50}, f"`colour` is {'r' * 40!r}", "one of white, blue"),
        ({"colour": "\ud800"}, "`colour` is '\\ud800'", "one of white, blue"),
        ({"crushed": 1}, "`crushed` is true or false", ""),
        ({"notes": ["a", 1]}, "`notes` is a list of names", ""),
        ({"extra": {"a": "b"}}, "`extra` cannot be \"{'a': 'b'}\"", ""),
        ({"blocks": 2, "crushed": True}, "crushed ice has no blocks", ""),
    ],
)
def test_wrong_values(given: dict[str, Any], message: str, hint: str) -> None:
    assert refused({"ice": "x", **given}) == ("bad_order", message, hint)


def test_a_field_has_words_of_its_own() -> None:
    assert refused({"ice": "x", "day": "soon"}) == ("bad_day", "'soon' is no day", "as 12")
    assert refused({"ice": "x", "day": 12}) == ("bad_day", "'12' is no day", "as 12")


def test_parts_of_an_object_have_words_of_their_own() -> None:
    class Shelf(Request, frozen=True, kw_only=True):
        words: ClassVar[RequestWords] = RequestWords("a shelf", "bad_shelf", "a shelf is an object")

        places: (
            Annotated[str, Refusal("a place is a name")]
            | Annotated[
                dict[str, Annotated[int, Meta(ge=0), Refusal("{key} holds {value}")]],
                Meta(max_length=2),
                Refusal("two places"),
            ]
            | None
        ) = None

    def message(places: Any) -> str:
        with pytest.raises(InvalidInput) as caught:
            decode_request({"places": places}, Shelf)
        return caught.value.message

    assert message({"a": 1, "b": -1}) == "'b' holds '-1'"
    assert message({"a": 1, "b": 1, "c": 1}) == "two places"
    assert message(7) == "a place is a name"


def test_an_unknown_field_may_come_before_a_missing_one() -> None:
    class Strict(Request, frozen=True, kw_only=True):
        words: ClassVar[RequestWords] = RequestWords("it", "bad", "an object with `a`", unknown_fields_first=True)

        a: Annotated[str, Refusal("`a` is a text")]

    for body, message in (({"b": 1}, "it has no field 'b'"), ({}, "`a` is a text")):
        with pytest.raises(InvalidInput) as caught:
            decode_request(body, Strict)
        assert caught.value.message == message


def test_of_several_wrong_fields_the_first_declared_is_named() -> None:
    assert refused({"crushed": 1, "ice": "x", "blocks": 0})[1].startswith("`blocks`")
