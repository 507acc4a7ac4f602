"""BM25 score of a term in a document, as the engine computes it, from numbers that may come from another index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

K1 = 1.2
B = 0.75


class Statistics(Protocol):
    """What is known of all documents together."""

    @property
    def rows(self) -> int: ...

    def documents_with(self, column: str, term: str, *, whole_word: bool = False) -> int:
        """How many documents hold a stem, or a whole word, in a column."""
        ...

    def average_length(self, column: str) -> float:
        """How many terms a document has in a column, on average."""
        ...


def rarity(documents: int, holding: int) -> float:
    """What one occurrence is worth: the rarer the term, the more."""
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


def scores(
    worth: float, occurrences: Mapping[int, int], lengths: Mapping[int, int], average: float
) -> dict[int, float]:
    """Of each document that has occurrences: more are worth more, each less than the one before; less in a long text.

    `worth` is the rarity of the term, or the sum of those of a phrase.
    """
    flat, slope = K1 * (1 - B), K1 * B / average
    return {
        ordinal: worth * times * (K1 + 1) / (times + flat + slope * lengths[ordinal])
        for ordinal, times in occurrences.items()
    }
