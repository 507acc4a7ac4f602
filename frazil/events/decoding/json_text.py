"""JSON read so that nothing is lost: numbers stay their text, a key given twice is seen, surrogates are refused.

What JSON itself or exactness forbids becomes a `JsonRefused` in the place of the value. It is no type that any column
accepts, so it is always found: the code that reads the value reports it, with the path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from json.encoder import encode_basestring as _quote
from typing import Any


class Number(str):
    """A JSON number: its text exactly as it was sent."""

    __slots__ = ()


@dataclass(frozen=True)
class JsonRefused:
    reason: str


class Wrong(Exception):
    """A value that its column cannot hold. Code that reads a larger value adds the path."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def inside(self, place: str) -> Wrong:
        return Wrong(self.reason, place + self.path)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | JsonRefused:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return JsonRefused(f"the object has the key {shown(key)} twice")
        seen.add(key)
    raise AssertionError("a shorter dict has a repeated key")


def _constant(name: str) -> JsonRefused:
    return JsonRefused(f'{name} is not JSON; a float or double column takes the text "{name}"')


decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=Number, parse_float=Number, parse_constant=_constant, strict=True
)


def depth(value: Any) -> int:
    """How many objects and lists are nested in each other, including the value itself."""
    deepest, level = 0, [value]
    while True:
        nested: list[Any] = []
        found = False
        for item in level:
            if type(item) is dict:
                found = True
                nested.extend(item.values())
            elif type(item) is list:
                found = True
                nested.extend(item)
        if not found:
            return deepest
        deepest, level = deepest + 1, nested


def compact(value: Any) -> str:
    """The value as JSON without white space; numbers as they were sent, keys in the order they were sent."""
    text = _compact(value)
    check_text(text)
    return text


def _compact(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is Number:
        return str.__str__(value)
    if kind is dict:
        return "{" + ",".join(f"{_quote(key)}:{_compact(item)}" for key, item in value.items()) + "}"
    if kind is list:
        return "[" + ",".join(map(_compact, value)) + "]"
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    raise Wrong(value.reason if kind is JsonRefused else f"{kind.__name__} is not JSON")


def check_text(text: str) -> None:
    """Refuse half of a surrogate pair: it is no character and has no UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Wrong("the text contains half of a surrogate pair, which is not a valid character") from error


def shown(value: Any, limit: int = 60) -> str:
    """A value as an error shows it: short, and without what could not be printed."""
    text = str(value) if type(value) is Number else ascii(value) if not _printable(value) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _printable(value: Any) -> bool:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def described(value: Any) -> str:
    kind = type(value)
    if value is None:
        return "null"
    if kind is JsonRefused:
        return f"an invalid value: {value.reason}"
    if kind is Number:
        return f"the number {shown(value)}"
    if kind is str:
        return f"the text {shown(value)}"
    if kind is bool:
        return "true" if value else "false"
    return "an object" if kind is dict else "a list"
