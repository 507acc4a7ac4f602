"""Text index of fresh documents: they come and go one by one, and are found at once.

It answers as the artifact's text index does, with that one's statistics: by its own, a word of the only fresh document
would count as common, and the newest would always rank last. It is plain Python because the engine makes new
documents searchable by a commit, which takes milliseconds, and ranks by what it holds itself. The tail is small.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.text.analysis import stems, words
from frazil.serving.text.bm25 import Statistics, rarity, scores
from frazil.serving.text.layout import TextLayout
from frazil.serving.text.query_syntax import Group, Must, Node, TextQuery, Words, read_query
from frazil.serving.text.tantivy_query import MAX_PREFIX_WORDS, TIE_BREAKER
from frazil.serving.text.text_index import Floats, check_k, column_weights

Scores = dict[int, float]
_Postings = dict[tuple[str, str], dict[int, int]]


@dataclass(frozen=True)
class _Document:
    stems: Mapping[str, list[str]]
    words: Mapping[str, frozenset[str]]


class FreshText:
    """Documents by ordinals that the caller gives them. Threads may search at once, while none adds or removes."""

    def __init__(self, layout: TextLayout, *, like: Statistics | None = None) -> None:
        self.layout = layout
        self._statistics: Statistics = like if like is not None and like.rows else self
        self._documents: dict[int, _Document] = {}
        # For each column and term: which documents hold it, and how often.
        self._by_stem: _Postings = defaultdict(dict)
        self._by_word: _Postings = defaultdict(dict)
        self._lengths: dict[str, dict[int, int]] = {column: {} for column in layout.columns}
        self._total_lengths = dict.fromkeys(layout.columns, 0)

    @property
    def rows(self) -> int:
        return len(self._documents)

    def ranked_like(self, other: Statistics) -> FreshText:
        """The same documents, now and later, by the statistics of another index."""
        same = copy(self)
        same._statistics = other if other.rows else same
        return same

    def add(self, ordinal: int, document: Mapping[str, str | None]) -> None:
        """Index a document; one of the same ordinal is replaced."""
        self.remove(ordinal)
        language = self.layout.language
        texts = {column: document.get(column) or "" for column in self.layout.columns}
        added = _Document(
            {column: stems(language).terms(text) for column, text in texts.items()},
            {column: frozenset(words(language).terms(text)) for column, text in texts.items()},
        )
        self._documents[ordinal] = added
        for column in self.layout.columns:
            self._lengths[column][ordinal] = len(added.stems[column])
            self._total_lengths[column] += len(added.stems[column])
            for term, times in Counter(added.stems[column]).items():
                self._by_stem[column, term][ordinal] = times
            for word in added.words[column]:
                self._by_word[column, word][ordinal] = 1

    def remove(self, ordinal: int) -> None:
        """Forget a document, if it is there."""
        gone = self._documents.pop(ordinal, None)
        if gone is None:
            return
        for column in self.layout.columns:
            self._total_lengths[column] -= self._lengths[column].pop(ordinal)
            for term in set(gone.stems[column]):
                _drop(self._by_stem, (column, term), ordinal)
            for word in gone.words[column]:
                _drop(self._by_word, (column, word), ordinal)

    def read(self, text: str) -> TextQuery:
        return read_query(text, self.layout.columns)

    def search(
        self,
        query: str | TextQuery,
        k: int,
        *,
        allowed: Bitmap | None = None,
        weights: Mapping[str, float] | None = None,
        minimum_should: int | None = None,
    ) -> tuple[Floats, Ordinals]:
        """As `TextIndex.search`."""
        check_k(k)
        tree = self.read(query) if isinstance(query, str) else query
        matched = self._group(tree.root, column_weights(self.layout, weights), minimum_should) or {}
        hits = [(-worth, ordinal) for ordinal, worth in matched.items() if allowed is None or ordinal in allowed]
        best = sorted(hits)[:k]
        return (
            np.array([-worth for worth, _ in best], dtype=np.float32),
            np.array([ordinal for _, ordinal in best], dtype=np.int64),
        )

    def documents_with(self, column: str, term: str, *, whole_word: bool = False) -> int:
        return len((self._by_word if whole_word else self._by_stem).get((column, term), ()))

    def average_length(self, column: str) -> float:
        return self._total_lengths[column] / len(self._documents) if self._total_lengths[column] else 1.0

    def _node(self, node: Node, weights: Mapping[str, float]) -> Scores | None:
        return self._group(node, weights, None) if isinstance(node, Group) else self._in_columns(node, weights)

    def _group(self, group: Group, weights: Mapping[str, float], minimum_should: int | None) -> Scores | None:
        matches: dict[Must, list[Scores]] = {must: [] for must in Must}
        for must, node in group.clauses:
            matched = self._node(node, weights)
            if matched is not None:
                matches[must].append(matched)
        if not any(matches.values()):
            return None
        optional, required, excluded = matches[Must.SHOULD], matches[Must.MUST], matches[Must.NOT]
        needed = min(minimum_should or 0, len(optional)) or int(bool(optional) and not required)
        totals: Scores = {}
        for clause in required + optional:
            for ordinal, worth in clause.items():
                totals[ordinal] = totals.get(ordinal, 0.0) + worth
        if not totals and not required and not optional:
            totals = dict.fromkeys(self._documents, 0.0)
        unwanted = set().union(*excluded)
        if not required and needed <= 1:
            return {ordinal: worth for ordinal, worth in totals.items() if ordinal not in unwanted}
        return {
            ordinal: worth
            for ordinal, worth in totals.items()
            if ordinal not in unwanted
            and all(ordinal in clause for clause in required)
            and sum(ordinal in clause for clause in optional) >= needed
        }

    def _in_columns(self, term: Words, weights: Mapping[str, float]) -> Scores | None:
        columns = [term.column] if term.column is not None else list(weights)
        by_column = []
        for column in columns:
            matched = self._in_column(term, column)
            if matched is None:
                return None
            weight = weights.get(column, 1.0)
            by_column.append({ordinal: weight * worth for ordinal, worth in matched.items()})
        return _best_of(by_column, TIE_BREAKER)

    def _in_column(self, term: Words, column: str) -> Scores | None:
        whole = words(self.layout.language).terms(term.text)
        if not whole:
            return None
        if term.prefix and len(whole) == 1:
            return self._begun(column, whole[0])
        return self._in_a_row(column, stems(self.layout.language).terms(term.text), last_is_begun=term.prefix)

    def _begun(self, column: str, prefix: str) -> Scores:
        known = [
            (len(held), word) for (of, word), held in self._by_word.items() if of == column and word.startswith(prefix)
        ]
        frequent = sorted(known, reverse=True)[:MAX_PREFIX_WORDS]
        return _best_of([self._whole_word(column, word) for _, word in frequent], 0.0)

    def _whole_word(self, column: str, word: str) -> Scores:
        worth = rarity(self._statistics.rows, self._statistics.documents_with(column, word, whole_word=True))
        return self._scores(column, worth, self._by_word[column, word])

    def _in_a_row(self, column: str, terms: list[str], *, last_is_begun: bool) -> Scores:
        """Documents with these terms one after the other; one term is a row, too."""
        surely = terms[:-1] if last_is_begun else terms
        holding = [self._by_stem.get((column, term), {}) for term in surely]
        worth = sum(rarity(self._statistics.rows, self._statistics.documents_with(column, term)) for term in surely)
        if len(terms) == 1:
            return self._scores(column, worth, holding[0])
        times = {
            ordinal: _occurrences(self._documents[ordinal].stems[column], terms, last_is_begun=last_is_begun)
            for ordinal in set(holding[0]).intersection(*holding[1:])
        }
        return self._scores(column, worth, {ordinal: often for ordinal, often in times.items() if often})

    def _scores(self, column: str, worth: float, times: Mapping[int, int]) -> Scores:
        return scores(worth, times, self._lengths[column], self._statistics.average_length(column))


def _drop(postings: _Postings, key: tuple[str, str], ordinal: int) -> None:
    del postings[key][ordinal]
    if not postings[key]:
        del postings[key]


def _best_of(alternatives: list[Scores], tie_breaker: float) -> Scores:
    """The best score of each document, and a little of the others."""
    if len(alternatives) == 1:
        return alternatives[0]
    combined: Scores = {}
    for ordinal in set().union(*alternatives):
        every = [one[ordinal] for one in alternatives if ordinal in one]
        combined[ordinal] = max(every) + tie_breaker * (sum(every) - max(every))
    return combined


def _occurrences(text: list[str], terms: list[str], *, last_is_begun: bool) -> int:
    surely = len(terms) - last_is_begun
    return sum(
        text[at : at + surely] == terms[:surely] and (not last_is_begun or text[at + surely].startswith(terms[-1]))
        for at in range(len(text) - len(terms) + 1)
    )
