"""The score of a term in a document, as the engine computes it, from numbers that may come from another index."""

from __future__ import annotations

import math
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


def score(rarity_of_terms: float, occurrences: int, length: int, average_length: float) -> float:
    """More occurrences are worth more, each less than the one before; in a long text, less than in a short one."""
    dampened = occurrences + K1 * (1 - B + B * length / average_length)
    return rarity_of_terms * occurrences * (K1 + 1) / dampened
