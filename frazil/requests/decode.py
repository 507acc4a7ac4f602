"""Decoding of requests: a JSON value becomes a request, or `InvalidInput` with the field, the reason and a hint.

A request is a msgspec struct. Its fields carry their constraints as `Meta`, and a `Refusal` where the standard words
for a wrong value are not enough. Checks that need several fields are in `__post_init__`, which raises `InvalidInput`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from frazil.errors import InvalidInput

_QUOTED_NAME = 80
_QUOTED_VALUE = 40


@dataclass(frozen=True)
class RequestWords:
    """The words of a kind of request in its errors."""

    noun: str
    """With its article: "a query"."""
    code: str
    """The code of errors that have none of their own."""
    shape: str
    """The message for a body that is no object, or lacks what every such request has."""
    example: str = ""
    """The hint beside it."""
    unknown_field_code: str = "unknown_field"


@dataclass(frozen=True)
class Refusal:
    """The words for a wrong value of a field, beside its type: `Annotated[int, Meta(ge=1), Refusal("…")]`.

    `{value}` stands for the value, quoted and cut off.
    """

    message: str
    hint: str = ""
    code: str = ""
    """Empty: that of the request."""
    quoted_characters: int = _QUOTED_VALUE


class Request(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all requests. A field that is null means the same as one that is absent: the default."""

    words: ClassVar[RequestWords]


R = TypeVar("R", bound=Request)


def decode_request(body: object, kind: type[R]) -> R:
    """The request in a JSON value."""
    if not isinstance(body, dict):
        raise bad_shape(kind.words)
    given = {name: value for name, value in body.items() if value is not None}
    fields = _fields(kind)
    for field in fields:
        if field.required:
            _check_field(given, field, kind.words)
    check_names(body, [field.encode_name for field in fields], kind.words)
    try:
        return msgspec.convert(given, kind)
    except ValueError as error:  # ValidationError, and UnicodeEncodeError for text that is half a character
        for field in fields:
            _check_field(given, field, kind.words)
        raise InvalidInput(f"{kind.words.noun} is wrong: {error}", code=kind.words.code) from error


@cache
def _fields(kind: type[Request]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def check_names(given: Iterable[object], known: list[str], words: RequestWords) -> None:
    """Refuse a field that nobody reads: a typo must not be ignored."""
    for name in given:
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            raise InvalidInput(
                f"{words.noun} has no field {str(name)[:_QUOTED_NAME]!r}",
                code=words.unknown_field_code,
                hint=f"did you mean {close[0]!r}?" if close else "its fields are " + ", ".join(known),
            )


def bad_shape(words: RequestWords) -> InvalidInput:
    return InvalidInput(words.shape, code=words.code, hint=words.example)


def _check_field(given: dict[str, Any], field: msgspec.structs.FieldInfo, words: RequestWords) -> None:
    """Refuse the value of one field, in its own words."""
    name = field.encode_name
    if name not in given:
        if field.required:
            raise bad_shape(words)
        return
    try:
        msgspec.convert(given[name], field.type)
    except ValueError as error:
        raise _refused(given[name], field, words) from error


def _refused(value: object, field: msgspec.structs.FieldInfo, words: RequestWords) -> InvalidInput:
    refusal = _own_refusal(field.type)
    if refusal is None:
        if field.required:
            return bad_shape(words)
        refusal = _standard_refusal(field.encode_name, field.type)
    quoted = repr(str(value)[: refusal.quoted_characters])
    return InvalidInput(refusal.message.replace("{value}", quoted), code=refusal.code or words.code, hint=refusal.hint)


def _own_refusal(declared: Any) -> Refusal | None:
    """The refusal beside a type, or beside a member of a union: `Annotated[str, …, Refusal("…")] | None`."""
    for entry in getattr(declared, "__metadata__", ()):
        if isinstance(entry, Refusal):
            return entry
    return next(filter(None, map(_own_refusal, _members(declared))), None)


def _standard_refusal(name: str, declared: Any) -> Refusal:
    """The words that follow from the type of a field."""
    members = [one for one in _members(declared) if one is not type(None)]
    if len(members) == 1:
        return _standard_refusal(name, members[0])
    if get_origin(declared) is Literal:  # msgspec sorts the words; people read them in the order of the declaration
        return Refusal(f"`{name}` is {{value}}", "one of " + ", ".join(get_args(declared)))
    kind = inspect.type_info(declared)
    match kind.type if isinstance(kind, inspect.Metadata) else kind:
        case inspect.IntType(ge=int(least), le=int(most)):
            return Refusal(f"`{name}` is a whole number from {least:,} to {most:,}")
        case inspect.FloatType(ge=float() | int() as least, le=float() | int() as most):
            return Refusal(f"`{name}` is a number from {least:g} to {most:,.0f}")
        case inspect.FloatType():
            return Refusal(f"`{name}` is a number")
        case inspect.BoolType():
            return Refusal(f"`{name}` is true or false")
        case inspect.StrType(max_length=int(most)):
            return Refusal(f"`{name}` is a text of 1 to {most:,} characters")
        case inspect.ListType(item_type=inspect.StrType()) | inspect.VarTupleType(item_type=inspect.StrType()):
            return Refusal(f"`{name}` is a list of names")
    return Refusal(f"`{name}` cannot be {{value}}")


def _members(declared: Any) -> tuple[Any, ...]:
    """The members of a union; none of any other type."""
    return get_args(declared) if isinstance(declared, UnionType) or get_origin(declared) is Union else ()
