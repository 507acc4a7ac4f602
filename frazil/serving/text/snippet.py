"""Snippet: the part of a text that shows why it was found, with the words of the query marked."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from frazil.serving.text.analysis import TextToken, stems, words
from frazil.serving.text.query_syntax import TextQuery

DEFAULT_CHARACTERS = 200
# Text beyond this is not looked at: chunks are far shorter, and a snippet must not cost more than the search.
_MAX_TEXT = 100_000


@dataclass(frozen=True)
class TextSnippet:
    """`text[start:end]` of the document, and the marked ranges within the snippet, in characters."""

    text: str
    start: int
    marks: tuple[tuple[int, int], ...]

    def html(self) -> str:
        """Safe to put into a page: everything is escaped but the `<b>` around words of the query."""
        parts = []
        at = 0
        for begin, end in self.marks:
            parts += [html.escape(self.text[at:begin]), "<b>", html.escape(self.text[begin:end]), "</b>"]
            at = end
        return "".join([*parts, html.escape(self.text[at:])])


def best_snippet(
    query: TextQuery, text: str, *, column: str, language: str, characters: int = DEFAULT_CHARACTERS
) -> TextSnippet:
    """The stretch of at most so many characters with most words of the query; the beginning if none."""
    text = text[:_MAX_TEXT]
    marked = _marked(query, text, column, language)
    start, end = _around(text, *_densest(marked, characters), characters)
    inside = [token for token in marked if start <= token.start and token.end <= end]
    return TextSnippet(text[start:end], start, tuple((token.start - start, token.end - start) for token in inside))


def _marked(query: TextQuery, text: str, column: str, language: str) -> list[TextToken]:
    terms, begun = _query_terms(query, column, language)
    by_stem = stems(language).tokens(text, terms.__contains__) if terms else []
    if not begun:
        return by_stem
    by_prefix = words(language).tokens(text, lambda word: word.startswith(begun))
    return sorted({(token.start, token.end): token for token in by_stem + by_prefix}.values(), key=lambda it: it.start)


@lru_cache(maxsize=256)
def _query_terms(query: TextQuery, column: str, language: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The terms to mark, and the beginnings of words; the same for each hit of a search."""
    wanted = [word for word in query.words() if word.column in (None, column)]
    terms = frozenset(term for word in wanted for term in stems(language).terms(word.text))
    return terms, tuple(term for word in wanted if word.prefix for term in words(language).terms(word.text)[-1:])


def _densest(marked: list[TextToken], characters: int) -> tuple[int, int]:
    """From where to where most different terms stand within so many characters."""
    best, stretch, first = (0, 0), (0, 0), 0
    held: Counter[str] = Counter()
    for last, token in enumerate(marked):
        held[token.term] += 1
        while token.end - marked[first].start > characters and first < last:
            gone = marked[first].term
            held[gone] -= 1
            if not held[gone]:
                del held[gone]
            first += 1
        worth = (len(held), last - first + 1)
        if worth > best and token.end - marked[first].start <= characters:
            best, stretch = worth, (marked[first].start, token.end)
    return stretch


def _around(text: str, first: int, last: int, characters: int) -> tuple[int, int]:
    """So many characters around `first` to `last`, from word to word where that cuts nothing off."""
    start = max(0, last - characters, first - characters // 8)
    end = min(len(text), start + characters)
    start = max(0, min(start, end - characters))
    if start and not text[start - 1].isspace():
        space = text.find(" ", start, min(start + 20, first))
        start = space + 1 if space >= 0 else start
    if end < len(text) and not text[end].isspace():
        space = text.rfind(" ", max(end - 20, last), end)
        end = space if space > start else end
    return start, end
