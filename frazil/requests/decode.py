"""Request decoding: a JSON value becomes a request, or `InvalidInput` with the field, the reason and a hint.

A request is a msgspec struct. Its fields carry their constraints as `Meta`, and a `Refusal` where the standard words
for a wrong value are not enough. Checks that need several fields are in `__post_init__`, which raises `InvalidInput`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from frazil.errors import InvalidInput

_QUOTED_NAME = 80
_QUOTED_VALUE = 40
# The second is raised for a text with half a character where words are compared.
_WRONG = (msgspec.ValidationError, UnicodeEncodeError)


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
    unknown_fields_first: bool = False
    """Whether an unknown field is named before a missing one."""
    key_field: str = ""
    """The field without which a body is no such request at all: the answer is `shape`."""
    may_be_empty: bool = True
    """Whether an object without fields is such a request."""


@dataclass(frozen=True)
class Refusal:
    """The words for a wrong value, beside its type: `Annotated[int, Meta(ge=1), Refusal("…")]`.

    `{value}` stands for the value, quoted and cut off, `{key}` for its key in an object.
    """

    message: str
    hint: str = ""
    code: str = ""
    """Empty: that of the request."""
    quoted_characters: int = _QUOTED_VALUE

    def error(self, value: object, code: str, key: object = "") -> InvalidInput:
        """The error; `code` is the request's."""
        quoted = {"{key}": repr(str(key)[:_QUOTED_NAME]), "{value}": repr(str(value)[: self.quoted_characters])}
        message, hint = self.message, self.hint
        for place, text in quoted.items():
            message, hint = message.replace(place, text), hint.replace(place, text)
        return InvalidInput(message, code=self.code or code, hint=hint)


class Request(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all requests. A field that is null means the same as one that is absent: the default."""

    words: ClassVar[RequestWords]
    empty_means_default: ClassVar[frozenset[str]] = frozenset()
    """Fields whose empty value, as "" or [], means the same as null."""
    null_is_a_value: ClassVar[frozenset[str]] = frozenset()
    """Fields whose null is judged like any other value."""


R = TypeVar("R", bound=Request)


def decode_request(body: object, kind: type[R]) -> R:
    """The request in a JSON value."""
    words = kind.words
    if not isinstance(body, dict) or (words.key_field and words.key_field not in body):
        raise _bad_shape(words)
    if not (body or words.may_be_empty):
        raise _bad_shape(words)
    fields = _fields(kind)
    if words.unknown_fields_first:
        _check_names(body, fields, words)
    given = _given(body, kind)
    for field in fields:
        if field.required:
            _check_field(given, field, words)
    _check_names(body, fields, words)
    try:
        return msgspec.convert(given, kind)
    except _WRONG as error:
        for field in fields:
            _check_field(given, field, words)
        raise InvalidInput(f"{words.noun} is wrong: {error}", code=words.code) from error


def decode_part(body: object, kind: type[R], where: str) -> R:
    """The request that is a part of another one; its errors begin with where it is."""
    try:
        return decode_request(body, kind)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.message}", code=error.code, hint=error.hint) from error


def _given(body: dict[str, Any], kind: type[Request]) -> dict[str, Any]:
    """The fields that have a value."""
    given = {}
    for name, value in body.items():
        if not value and name in kind.empty_means_default:
            value = None
        if value is not None or name in kind.null_is_a_value:
            given[name] = value
    return given


@cache
def _fields(kind: type[Request]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields, those of its own first: what it shares with other kinds matters less to who reads an error."""
    inherited = {name for base in kind.__bases__ if issubclass(base, Request) for name in base.__struct_fields__}
    return tuple(sorted(msgspec.structs.fields(kind), key=lambda field: field.name in inherited))


def _bad_shape(words: RequestWords) -> InvalidInput:
    return InvalidInput(words.shape, code=words.code, hint=words.example)


def _check_names(given: Iterable[object], fields: tuple[msgspec.structs.FieldInfo, ...], words: RequestWords) -> None:
    """Refuse a field that nobody reads: a typo must not be ignored."""
    known = [field.encode_name for field in fields]
    for name in given:
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            raise InvalidInput(
                f"{words.noun} has no field {str(name)[:_QUOTED_NAME]!r}",
                code=words.unknown_field_code,
                hint=f"did you mean {close[0]!r}?" if close else "its fields are " + ", ".join(known),
            )


def _check_field(given: dict[str, Any], field: msgspec.structs.FieldInfo, words: RequestWords) -> None:
    """Refuse the value of one field, in its own words."""
    name = field.encode_name
    if name not in given and not field.required:
        return
    value = given.get(name)
    if name in given and _fits(value, field.type):
        return
    for key, part, declared in _parts(value, field.type):
        refusal = _own_refusal(declared, part)
        if refusal is not None and not _fits(part, declared):
            raise refusal.error(part, words.code, key)
    refusal = _own_refusal(field.type, value)
    if refusal is None and field.required:
        raise _bad_shape(words)
    raise (refusal or _standard_refusal(name, field.type)).error(value, words.code)


def _fits(value: object, declared: Any) -> bool:
    try:
        msgspec.convert(value, declared)
    except _WRONG:
        return False
    return True


def _own_refusal(declared: Any, value: object) -> Refusal | None:
    """The refusal beside a type; of a union that of the member the value is meant for, or else the first one."""
    for entry in getattr(declared, "__metadata__", ()):
        if isinstance(entry, Refusal):
            return entry
    members = sorted(_members(declared), key=lambda member: _origin(member) is not type(value))
    return next(filter(None, (_own_refusal(member, value) for member in members)), None)


def _parts(value: object, declared: Any) -> Iterator[tuple[object, object, Any]]:
    """The values of an object with their keys and declared types."""
    if not isinstance(value, dict):
        return
    for member in _members(declared) or (declared,):
        bare = _bare(member)
        if get_origin(bare) is dict:
            yield from ((key, part, get_args(bare)[1]) for key, part in value.items())
        elif isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            inner = {field.encode_name: field.type for field in msgspec.structs.fields(bare)}
            yield from ((key, part, inner[key]) for key, part in value.items() if key in inner)


def _standard_refusal(name: str, declared: Any) -> Refusal:
    """The words that follow from the type of a field."""
    members = [one for one in _members(declared) if one not in (type(None), msgspec.UnsetType)]
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


def _bare(declared: Any) -> Any:
    return get_args(declared)[0] if get_origin(declared) is Annotated else declared


def _origin(declared: Any) -> Any:
    bare = _bare(declared)
    return get_origin(bare) or bare
