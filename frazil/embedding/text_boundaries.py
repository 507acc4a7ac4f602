"""Text boundaries where chunks may end: below Markdown headings, and between sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

Section = tuple[int, int, tuple[str, ...]]
"""From, to, and the headings that it stands below."""

_LINE = re.compile(r"[^\n]*\n?")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=\s|\Z)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MAX_HEADING = 200

# A sentence ends with its mark and white space, with one of the full-width marks, or with an empty line; and a line
# that begins an item of a list begins a sentence. Marks are looked at from the first of a row only: a megabyte of dots
# must not be tried from each of them.
_END = re.compile(
    r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+(?=\s)"""
    r"""|[。！？]+[」』”’）]*"""
    r"""|\n[ \t\r]*\n"""
    r"""|\n(?=[ \t]*(?:[-*+•]|\d{1,4}[.)])[ \t])"""
)
_NO_END = re.compile(
    r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|Fig|cf|vs|etc|approx|[Ee]\.g|[Ii]\.e|z\.\s?B|bzw|ca|Abb)\.)\Z"
)


def sections(text: str) -> Iterator[Section]:
    """The parts of a Markdown text, each from its heading to the next; a heading without a text joins the next part."""
    path: list[tuple[int, str]] = []
    start, has_body, fence = 0, False, ""
    for match in _LINE.finditer(text):
        line = match.group()
        fence = _fenced(line, fence)
        heading = None if fence else _HEADING.match(line)
        if heading is None:
            has_body = has_body or bool(line.strip())
            continue
        if has_body:
            yield start, match.start(), _words(path)
            start, has_body = match.start(), False
        level = len(heading[1])
        path = [*(known for known in path if known[0] < level), (level, _title(line[heading.end() :]))]
    if start < len(text):
        yield start, len(text), _words(path)


def _title(rest: str) -> str:
    """The words of a heading, without the marks that may close it."""
    words = rest.strip()
    open_words = words.rstrip("#")
    return (open_words if not open_words or open_words[-1].isspace() else words).strip()[:_MAX_HEADING]


def _words(path: list[tuple[int, str]]) -> tuple[str, ...]:
    return tuple(title for _, title in path if title)


def _fenced(line: str, fence: str) -> str:
    """The fence of the code block that is open after this line: what looks like a heading in there is none."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    closes = found[1].startswith(fence) and not line[found.end() :].strip("`~ \t\r\n")
    return "" if closes else fence


def sentence_starts(text: str, start: int, end: int) -> list[int]:
    """Where sentences begin after the first one, in order. A wrong guess costs nothing but a cut there."""
    found: list[int] = []
    at = start
    for match in _END.finditer(text, start, end):
        if match.end() < at:
            continue  # in white space that was passed already
        at = match.end()
        while at < end and text[at].isspace():
            at += 1
        if at >= end or (found and at <= found[-1]):
            continue
        is_dot = match.group().endswith(".")
        if is_dot and (text[at].islower() or _NO_END.search(text, max(start, match.end() - 12), match.end())):
            continue
        found.append(at)
    return found
