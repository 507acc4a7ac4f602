"""Query syntax: the text of a search box as a tree. No text is an error.

    tea cake            either, both ranks higher
    "green tea"         the words one after the other
    tea*                words that begin so
    title:tea           in one column;  also  title:"green tea"  and  title:(green tea)
    +tea -cake          must, must not;  also  tea AND NOT cake
    tea OR (cake AND jam)

What cannot be read is left out, and the tree has a note of what and why. Length, number of terms and depth are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

MAX_CHARACTERS = 2_000
MAX_TERMS = 64
MAX_DEPTH = 12


class Must(Enum):
    SHOULD = "should"
    MUST = "must"
    NOT = "not"


@dataclass(frozen=True)
class Words:
    """One word, or several in a row (`phrase`), the last one perhaps only begun (`prefix`)."""

    text: str
    column: str | None = None
    phrase: bool = False
    prefix: bool = False


@dataclass(frozen=True)
class Group:
    clauses: tuple[tuple[Must, Node], ...]


Node = Words | Group


@dataclass(frozen=True)
class TextQuery:
    """The tree of a query, and what of the text is not in it, in plain words."""

    root: Group
    ignored: tuple[str, ...] = ()

    def words(self) -> list[Words]:
        """The words that a hit may show: all but the excluded ones."""
        return _asked_for(self.root)


def _asked_for(node: Node) -> list[Words]:
    if isinstance(node, Words):
        return [node]
    return [word for must, clause in node.clauses if must is not Must.NOT for word in _asked_for(clause)]


_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<open>\()
    |(?P<close>\))
    |(?P<sign>[+\-](?=[^\s)]))
    |(?P<column>[A-Za-z_][A-Za-z0-9_]*:(?=[^\s):]))
    |"(?P<phrase>[^"]*)(?P<closed>"?)(?P<phrase_star>\*?)
    |(?P<word>[^\s()"]+)""",
    re.VERBOSE,
)
_HAS_LETTER = re.compile(r"\w")


@dataclass
class _Reader:
    """Reads left to right, one level of parentheses at a time. `AND` binds closer than `OR`, `NOT` closest."""

    tokens: list[re.Match[str]]
    columns: Collection[str]
    ignored: list[str] = field(default_factory=list)
    at: int = 0
    terms: int = 0

    def group(self, column: str | None, depth: int) -> Group:
        alternatives: list[list[tuple[Must, Node]]] = [[]]
        joined = False
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.lastgroup == "close":
                self.at += 1
                if depth:
                    break
                self.ignored.append("`)` without `(`")
                continue
            word = token["word"]
            if word == "AND" or word == "&&":
                self.at += 1
                _require_last(alternatives[-1])
                joined = bool(alternatives[-1])
                continue
            if word == "OR" or word == "||":
                self.at += 1
                if alternatives[-1]:
                    alternatives.append([])
                joined = False
                continue
            must = Must.MUST if joined else Must.SHOULD
            joined = False
            clause = self._clause(must, column, depth)
            if clause is not None:
                alternatives[-1].append(clause)
        else:
            if depth:
                self.ignored.append("`(` without `)`")
        return _either([some for some in alternatives if some])

    def _clause(self, must: Must, column: str | None, depth: int) -> tuple[Must, Node] | None:
        """A word, a phrase or a group, with the signs and the column before it."""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            kind = token.lastgroup
            if kind == "sign":
                must = Must.MUST if token["sign"] == "+" else Must.NOT
            elif token["word"] == "NOT":
                must = Must.NOT
            elif kind == "column":
                name = token["column"][:-1]
                if name in self.columns:
                    column = name
                else:
                    # A time, an address, `std:` of C++: words like others.
                    self.ignored.append(f"there is no text column {name!r}; its name is searched for as a word")
                    self.at -= 1
                    return self._words(must, Words(name), consumed=1)
            elif kind == "open":
                if depth >= MAX_DEPTH:
                    self.ignored.append(f"parentheses deeper than {MAX_DEPTH}")
                    continue
                inner = self.group(column, depth + 1)
                return (must, inner) if inner.clauses else None
            elif kind == "close":
                self.at -= 1
                return None
            elif token["phrase"] is not None:
                if not token["closed"]:
                    self.ignored.append('`"` without its end')
                prefix = bool(token["phrase_star"])
                return self._words(must, Words(token["phrase"], column, phrase=True, prefix=prefix))
            else:
                prefix = token["word"].endswith("*")
                return self._words(must, Words(token["word"].rstrip("*"), column, prefix=prefix))
        return None

    def _words(self, must: Must, words: Words, *, consumed: int = 0) -> tuple[Must, Node] | None:
        self.at += consumed
        if not _HAS_LETTER.search(words.text):
            if words.text or words.phrase or words.prefix:
                self.ignored.append(f"{words.text or '*'!r} has no letter or digit")
            return None
        self.terms += 1 + words.text.count(" ")
        if self.terms > MAX_TERMS:
            self.ignored.append(f"more than {MAX_TERMS} words: {words.text[:40]!r}")
            return None
        return must, words


def _require_last(clauses: list[tuple[Must, Node]]) -> None:
    if clauses and clauses[-1][0] is Must.SHOULD:
        clauses[-1] = (Must.MUST, clauses[-1][1])


def _either(alternatives: list[list[tuple[Must, Node]]]) -> Group:
    """Alternatives that are one clause each are clauses of one group: `a OR b` is `a b`."""
    if len(alternatives) == 1:
        return Group(tuple(alternatives[0]))
    flat: list[tuple[Must, Node]] = []
    for some in alternatives:
        if len(some) == 1 and some[0][0] is Must.SHOULD:
            flat.append(some[0])
        else:
            flat.append((Must.SHOULD, Group(tuple(some))))
    return Group(tuple(flat))


def read_query(text: str, columns: Collection[str]) -> TextQuery:
    """The tree of what was typed. Never raises."""
    ignored = []
    if len(text) > MAX_CHARACTERS:
        ignored.append(f"what comes after {MAX_CHARACTERS} characters")
        text = text[:MAX_CHARACTERS]
    tokens = [token for token in _TOKEN.finditer(text.replace("\0", " ")) if token.lastgroup != "space"]
    reader = _Reader(tokens, columns, ignored)
    root = reader.group(None, 0)
    return TextQuery(root, tuple(dict.fromkeys(reader.ignored)))
