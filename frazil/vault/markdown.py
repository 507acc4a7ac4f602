"""Markdown of a note: its headings, tags and links, except those inside code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, autolink, image, link
from markdown_it.token import Token

LinkKind = Literal["wiki", "embed", "markdown", "url"]
LINE_BREAK = re.compile(r"\r\n?|\n")

_WIKI = re.compile(r"(!?)\[\[([^\[\]\n]{1,2000})\]\]")
_TAG = re.compile(r"#([\w/\-]{1,200})")
_OUTWARD = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]*:|//)")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    slug: str
    line: int


@dataclass(frozen=True)
class NoteLink:
    """A link as it is written. `wiki` and `embed` are Obsidian's brackets and all pictures; `url` leaves the vault."""

    kind: LinkKind
    target: str
    anchor: str | None
    display: str | None
    line: int
    by_path: bool
    """Whether the target is a path as in `[text](path)`, and not a name as in `[[name]]`."""


@dataclass(frozen=True)
class NoteContents:
    headings: tuple[Heading, ...]
    tags: tuple[str, ...]
    links: tuple[NoteLink, ...]


def read(body: str, *, first_line: int = 1) -> NoteContents:
    """The contents of a body whose first line has this number in its file."""
    headings: list[Heading] = []
    tags: dict[str, None] = {}
    links: list[NoteLink] = []
    slugs: dict[str, int] = {}
    line, level = first_line, 0
    for token in _parser().parse(body):
        if token.map is not None:
            line = first_line + token.map[0]
        if token.type == "heading_open":
            level = int(token.tag[1:])
        elif token.type == "inline":
            inner = token.children or []
            if level:
                text = plain(inner)
                headings.append(Heading(level, text, _slug(text, slugs), line))
                level = 0
            tags.update(dict.fromkeys(found.content for found in inner if found.type == "tag"))
            links.extend(_links(inner, line))
    return NoteContents(tuple(headings), tuple(tags), tuple(links))


def plain(tokens: Sequence[Token]) -> str:
    """The text of inline tokens as a reader sees it."""
    texts = {"softbreak": " ", "hardbreak": " "}
    words = []
    for token in tokens:
        if token.type in ("text", "code_inline", "text_special", "image"):
            words.append(token.content)
        elif token.type == "tag":
            words.append(f"#{token.content}")
        elif token.type == "wiki":
            target, anchor, display = _parts(token.content)
            words.append(display or target or anchor or "")
        else:
            words.append(texts.get(token.type, ""))
    return "".join(words).strip()


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    # Every scheme is a link here: these rows are looked at, not clicked on.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    rules = parser.inline.ruler
    rules.before("link", "wiki", _wiki)
    rules.before("link", "tag", _tag)
    for name, rule in (("link", link), ("image", image), ("autolink", autolink)):
        rules.at(name, _placed(rule))
    return parser


def _wiki(state: StateInline, silent: bool) -> bool:
    match = _WIKI.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        token = state.push("wiki", "", 0)
        token.content = match[2]
        token.meta = {"line": state.src.count("\n", 0, state.pos), "embed": bool(match[1])}
    state.pos = match.end()
    return True


def _tag(state: StateInline, silent: bool) -> bool:
    """`#tag` after a space or at the beginning, with something in it that is not a digit: `#1` is a number."""
    before = state.src[state.pos - 1 : state.pos]
    match = _TAG.match(state.src, state.pos, state.posMax)
    if match is None or (before and not before.isspace() and before not in "([*_,;") or match[1].isdigit():
        return False
    name = match[1].rstrip("/")
    if not name:
        return False
    if not silent:
        state.push("tag", "", 0).content = name
    state.pos = match.end()
    return True


def _placed(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    """The rule, with the line that a link stands in kept in its token."""

    def placed(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        for token in state.tokens[known:]:
            if token.type in ("link_open", "image"):
                token.meta = {**token.meta, "line": state.src.count("\n", 0, start)}
                break
        return True

    return placed


def _links(tokens: Sequence[Token], first_line: int) -> Iterator[NoteLink]:
    for index, token in enumerate(tokens):
        line = first_line + int(token.meta.get("line", 0))
        if token.type == "wiki":
            target, anchor, display = _parts(token.content)
            yield NoteLink("embed" if token.meta["embed"] else "wiki", target, anchor, display, line, by_path=False)
        elif token.type == "link_open":
            ends = (i for i in range(index + 1, len(tokens)) if tokens[i].type == "link_close")
            yield _by_path("markdown", str(token.attrs.get("href", "")), plain(tokens[index + 1 : next(ends)]), line)
        elif token.type == "image":
            yield _by_path("embed", str(token.attrs.get("src", "")), token.content, line)


def _by_path(kind: LinkKind, href: str, display: str, line: int) -> NoteLink:
    if _OUTWARD.match(href):
        return NoteLink("url", href, None, display or None, line, by_path=True)
    path, _, anchor = href.partition("#")
    return NoteLink(kind, _decoded(path), _decoded(anchor) or None, display or None, line, by_path=True)


def _decoded(text: str) -> str:
    return unquote(text, errors="replace")


def _parts(inner: str) -> tuple[str, str | None, str | None]:
    """Target, anchor and display of `target#anchor|display`; inside a table the bar is written `\\|`."""
    target, _, display = inner.replace("\\|", "|").partition("|")
    path, _, anchor = target.partition("#")
    return path.strip(), anchor.strip() or None, display.strip() or None


def _slug(text: str, seen: dict[str, int]) -> str:
    """As GitHub makes it, with a number from the second of the same name on."""
    slug = _NOT_IN_SLUG.sub("", text.lower()).replace(" ", "-")
    count = seen.get(slug, 0)
    seen[slug] = count + 1
    return f"{slug}-{count}" if count else slug
