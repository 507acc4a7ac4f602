"""Chunks of a text: the same text and the same chunking give the same chunks, whoever cuts them and whenever.

Nothing but white space is lost between chunks, none is longer than the size, and each is a piece of the text as it
stands, with the offsets to find it there.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from frazil.embedding.text_boundaries import sections, sentence_starts
from frazil.events.declaration import Chunking

# How far back a cut moves for a character that is made of several: the longest emoji of a family has 11.
_LONGEST_CLUSTER = 16
_JOINERS = "\u200d\ufe0e\ufe0f"
_CONTEXT_BREAK = " › "


@dataclass(frozen=True)
class Chunk:
    """A piece of a text: `text` is what stands there from `start` to `end`."""

    number: int
    start: int
    end: int
    text: str
    context: str = ""
    """The headings that it stands below, outermost first."""

    @property
    def passage(self) -> str:
        """The text that is embedded: the piece, below its headings."""
        return f"{self.context}\n{self.text}" if self.context else self.text


def chunked(text: str, chunking: Chunking) -> tuple[Chunk, ...]:
    """The chunks of a text in its order; none where it is only white space.

    `by` is where a chunk may end. "none": anywhere, though rather between words; a text that fits is one chunk.
    "sentence": after a sentence. "heading": as by sentence, and a Markdown heading begins a new chunk; one without a
    text of its own begins that of the next heading. Only a sentence longer than the size is cut inside. Chunks that end
    with a sentence share whole sentences, as many as `overlap` has room for, and none across a heading.
    """
    found: list[Chunk] = []
    for first, last, path in sections(text) if chunking.by == "heading" else [(0, len(text), ())]:
        for start, end in _spans(text, first, last, chunking):
            found.append(Chunk(len(found), start, end, text[start:end], _CONTEXT_BREAK.join(path)))
    return tuple(found)


def document_text(columns: Iterable[str | None]) -> str:
    """The text of a document from its columns of text, in their order, as paragraphs; empty ones are left out."""
    return "\n\n".join(text for text in columns if text and not text.isspace())


def content_hash(text: str) -> str:
    """Equal for equal texts alone: a passage of the same hash need not be embedded again by the same model."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _spans(text: str, first: int, last: int, chunking: Chunking) -> Iterator[tuple[int, int]]:
    """Chunks of one section as (start, end), white space at their ends left out."""
    start, stop = _trimmed(text, first, last)
    if stop - start <= chunking.size:
        # Most texts fit, and need not be looked through for their sentences.
        if start < stop:
            yield start, stop
        return
    starts = [] if chunking.by == "none" else sentence_starts(text, first, last)
    last = stop
    while start < last:
        end, is_whole = _end(text, start, last, starts, chunking.size)
        yield _trimmed(text, start, end)
        if end >= last:
            return
        start = _trimmed(text, _next_start(text, start, end, last, starts, chunking, is_whole), last)[0]


def _end(text: str, start: int, last: int, starts: Sequence[int], size: int) -> tuple[int, bool]:
    """Where the chunk from `start` ends, and whether that is the end of a sentence."""
    if last - start <= size:
        return last, True
    # White space before the next sentence is not part of this one: it does not count.
    fitting = bisect_right(starts, start + size) - 1
    if fitting + 1 < len(starts) and _trimmed(text, start, starts[fitting + 1])[1] <= start + size:
        fitting += 1
    if fitting >= 0 and starts[fitting] > start:
        return starts[fitting], True
    return _cut(text, start, start + size), False


def _next_start(
    text: str, start: int, end: int, last: int, starts: Sequence[int], chunking: Chunking, is_whole: bool
) -> int:
    """Where the chunk after the one from `start` to `end` begins: further back by what the two share."""
    onward = _trimmed(text, end, last)[0]
    earliest = max(_trimmed(text, start, end)[1] - chunking.overlap, start + 1)
    if not is_whole:
        shared = _between_words(text, earliest, end) if chunking.overlap else end
        return _progressing(text, shared, end, last, starts, chunking.size, onward)
    for index in range(bisect_left(starts, earliest), len(starts)):
        if starts[index] >= end:
            break
        # Only as long as the chunk still has room for what is new.
        if _reach(text, starts[index], last, starts, chunking.size) > end:
            return starts[index]
    return onward


def _progressing(text: str, shared: int, end: int, last: int, starts: Sequence[int], size: int, onward: int) -> int:
    """The shared start, if the chunk from there gets beyond `end`; else where the new text begins."""
    return shared if shared < end and _reach(text, shared, last, starts, size) > end else onward


def _reach(text: str, start: int, last: int, starts: Sequence[int], size: int) -> int:
    """Where the text of the chunk from `start` ends: white space behind it is nothing new."""
    return _trimmed(text, start, _end(text, start, last, starts, size)[0])[1]


def _cut(text: str, start: int, limit: int) -> int:
    """Where to cut what has no end in reach: between words, else between characters as people see them."""
    space = max((text.rfind(white, start + 1, limit + 1) for white in " \n\t"), default=-1)
    if space > start + (limit - start) // 2:
        return space
    for at in range(limit, max(start, limit - _LONGEST_CLUSTER), -1):
        if not _is_inside(text, at):
            return at
    return limit


def _between_words(text: str, at: int, end: int) -> int:
    """The first beginning of a word from `at` on; `at` itself, or near to it, where there is none before `end`."""
    if at > 0 and text[at - 1].isspace():
        return _trimmed(text, at, end)[0]
    spaces = [found for found in (text.find(white, at, end) for white in " \n\t") if found >= 0]
    if spaces:
        return _trimmed(text, min(spaces), end)[0]
    while at < end and _is_inside(text, at):
        at += 1
    return at


def _is_inside(text: str, at: int) -> bool:
    """Whether what people see as one character would be cut at this place."""
    if at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    return (
        (before == "\r" and after == "\n")
        or after in _JOINERS
        or before == "\u200d"
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # the tones of skin
        or unicodedata.combining(after) != 0
    )


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
