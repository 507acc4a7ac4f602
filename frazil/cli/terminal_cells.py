"""Cells: values of tables as a terminal shows them. Nothing in them may steer it, and every digit is there."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError

if TYPE_CHECKING:
    from rich.text import Text

MAX_CELL_CHARACTERS = 2_000
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"
"""Part of the spelling of many words and emoji; all other format characters can turn or hide what follows them."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, *, keep: str = "") -> str:
    """The text with every character that a terminal would obey, or that hides others, spelled out.

    Those in `keep` stay: line breaks and tabs of a whole file are no trick.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character in keep else _spelled(character) for character in text)


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in _STEERING or character in _JOINERS:
        return character
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def tame(error: FrazilError) -> None:
    """Make the error fit for a terminal: its words may quote a value or a statement."""
    error.message = printable(error.message, keep="\n")
    error.hint = printable(error.hint, keep="\n")


def styled(text: str, style: str) -> Text:
    """A cell of this text in a style; nothing in the text is markup."""
    from rich.text import Text

    return Text(printable(text), style=style)


def cell(value: Any) -> Text:
    """A value as a cell; a `Text` is one already."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if value is None:
        return Text("null", style="dim")
    if isinstance(value, bool):
        return Text(str(value).lower())
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(written) > MAX_CELL_CHARACTERS:
        written = written[:MAX_CELL_CHARACTERS] + "…"
    return Text(printable(written))
