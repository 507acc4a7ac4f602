"""Front matter: the YAML block at the top of a note, split off exactly, read safely, and written again.

Values are those of YAML's core schema, as Obsidian reads it: `yes` and `12:30` are texts, and so is a date, as it
stands in the file. What a number cannot hold exactly stays text. Nothing but plain values is ever made of a block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import yaml

MAX_BLOCK_CHARACTERS = 64 << 10
MAX_VALUES = 10_000
"""Counted as they are written out: an alias costs all that it stands for, so that few lines cannot become millions."""
MAX_DEPTH = 24

_BLOCK = re.compile(r"---[ \t]*(?:\r\n|\n|\r)(?P<yaml>(?:.*?(?:\r\n|\n|\r))??)---[ \t]*(?:\r\n|\n|\r|\Z)", re.DOTALL)
_INT = r"[-+]?(?:0|[1-9][0-9]{0,999})|0o[0-7]{1,999}|0x[0-9a-fA-F]{1,999}"
_FLOAT = r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,5})?"
_KINDS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": _INT,
    "float": _FLOAT,
}
_TAG = "tag:yaml.org,2002:"


class BadFrontMatter(Exception):
    """A block that cannot be read; its text is the reason."""


# Five times as fast where the C library is there, as it is in all wheels.
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SAFE):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it


class _Dumper(yaml.SafeDumper):
    """Writes so that both old and new YAML read the same value."""


for _kind, _pattern in _KINDS.items():
    _first = [None] if _kind == "null" else list("-+.0123456789tTfF")
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _first)


def _text_of(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Text that could be mistaken for another value is quoted; what breaks lines is escaped."""
    plain = text.isprintable()
    mistaken = any(re.fullmatch(pattern, text) for pattern in _KINDS.values())
    style = "'" if mistaken and plain else None if plain else '"'
    return dumper.represent_scalar(f"{_TAG}str", text, style=style)


_Dumper.add_representer(str, _text_of)


def split(text: str) -> tuple[str, str]:
    """The block with its two lines of dashes, and the rest; together they are the text. No block is ""."""
    match = _BLOCK.match(text)
    return (match[0], text[match.end() :]) if match else ("", text)


def load(block: str) -> dict[str, Any]:
    """The values of a block, or `BadFrontMatter`."""
    match = _BLOCK.fullmatch(block)
    if match is None:
        raise BadFrontMatter("it is no front matter")
    if len(block) > MAX_BLOCK_CHARACTERS:
        raise BadFrontMatter(f"it has {len(block):,} characters, at most {MAX_BLOCK_CHARACTERS:,} are read")
    try:
        node = yaml.compose(match["yaml"], Loader=_Loader)
        value = None if node is None else _Reading().value(node, 1)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 2}" if mark is not None else ""
        raise BadFrontMatter(f"it is not YAML: {getattr(error, 'problem', None) or error}{where}") from error
    except RecursionError as error:
        raise BadFrontMatter(f"it is nested deeper than {MAX_DEPTH}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadFrontMatter("it is not a list of keys and values")
    return value


def dump(values: Mapping[str, Any]) -> str:
    """A block of these values; `load` of it gives them again."""
    if not values:
        return "---\n---\n"
    text = yaml.dump(
        dict(values), Dumper=_Dumper, allow_unicode=True, sort_keys=False, default_flow_style=False, width=1 << 30
    )
    return f"---\n{text}---\n"


class _Reading:
    """The way from nodes to plain values, with a count of how many there are."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise BadFrontMatter(f"it has more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise BadFrontMatter(f"it is nested deeper than {MAX_DEPTH}")
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.ScalarNode) and kind in ("str", "timestamp", *_KINDS):
            return _scalar(kind, node.value)
        raise BadFrontMatter(f"it has a value of the type {node.tag}, which is not read")

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise BadFrontMatter("it has a key that is not a text")
            if key.value in found:
                raise BadFrontMatter(f"it has the key {key.value[:80]!r} twice")
            found[key.value] = self.value(item, depth + 1)
        return found


def _scalar(kind: str, text: str) -> Any:
    if kind == "null":
        return None
    if kind == "bool" and re.fullmatch(_KINDS["bool"], text):
        return text.lower() == "true"
    if kind == "int" and re.fullmatch(_INT, text):
        return int(text, 0)
    if kind == "float" and re.fullmatch(_FLOAT, text):
        number = float(text)
        # Infinity is not JSON, and 0.1000000000000000000001 would become another number.
        return number if abs(number) < float("inf") and Decimal(repr(number)) == Decimal(text) else text
    return text
