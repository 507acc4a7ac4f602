"""Text index: documents that hold the words of a query, best first by BM25, filtered or not.

The engine knows no bitmaps. It ranks, and we go down its ranking until enough of it is allowed: as far as the filter's
share suggests, and if that was not far enough, to the end. Where few are allowed, their ordinals become part of the
query instead. A set of 100 ordinals takes 2 ms, one of 1,000 takes 10; going to the end of 20,000 hits takes 3, of
60,000 it takes 15 [100,000 documents].
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tantivy

from frazil.errors import InvalidInput
from frazil.serving.bitmap import Bitmap, Ordinals
from frazil.serving.text.damage import damaged, engine_trouble
from frazil.serving.text.layout import ORDINAL, TextLayout, stem_field, word_field
from frazil.serving.text.query_syntax import TextQuery, read_query
from frazil.serving.text.tantivy_query import Compiler

Floats = npt.NDArray[np.float32]
MAX_K = 10_000
# One that is allowed by chance may come late: look this much further than the share of the filter suggests.
_FURTHER = 2
_FEW = 200
_NEAR = 1000


class TextIndex:
    """One text index of an artifact. Safe for several threads at once."""

    def __init__(self, index: tantivy.Index, layout: TextLayout, folder: Path) -> None:
        self.layout = layout
        self._folder = folder
        self._schema = index.schema
        self._searcher = index.searcher()
        self.rows = self._searcher.num_docs
        self.is_one_segment = self._searcher.num_segments == 1
        """Then the engine, which prefers what was added first, cuts equals off by their ordinals as well."""

    def read(self, text: str) -> TextQuery:
        """The tree of what was typed, which `search` and `snippet` take; never raises."""
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
        """The k best documents, as scores and ordinals, both of shape (found,); of equals, the lower ordinal first.

        `weights` names the columns to search in; `minimum_should` how many of the optional words a document must hold.
        """
        check_k(k)
        if allowed is not None and allowed.size != self.rows:
            raise ValueError(f"the filter is over {allowed.size} ordinals, the index has {self.rows}")
        tree = self.read(query) if isinstance(query, str) else query
        if self.rows == 0 or (allowed is not None and allowed.count == 0):
            return np.empty(0, np.float32), np.empty(0, np.int64)
        compiler = Compiler(self._schema, self._searcher, self.layout, column_weights(self.layout, weights))
        with engine_trouble(self._folder):
            compiled = compiler.query(tree.root, minimum_should=minimum_should)
            if compiled is None:
                return np.empty(0, np.float32), np.empty(0, np.int64)
            if allowed is None or allowed.count == self.rows:
                return self._ranked(compiled, k)
            return self._ranked_and_allowed(compiled, k, allowed)

    def _ranked_and_allowed(self, query: tantivy.Query, k: int, allowed: Bitmap) -> tuple[Floats, Ordinals]:
        far = min(self.rows, k + math.ceil(_FURTHER * k / allowed.share))
        near = min(far, _NEAR) if allowed.count <= _FEW else far
        scores, ordinals = self._found(query, near)
        held = allowed.holds(ordinals)
        if len(ordinals) == near and int(held.sum()) < k:
            if allowed.count <= _FEW:
                return self._ranked(self._among(query, allowed), k)
            scores, ordinals = self._found(query, self.rows)
            held = allowed.holds(ordinals)
        # Only what is left is put in order: sorting 20,000 takes 3 ms.
        scores, ordinals = _in_order(scores[held], ordinals[held])
        return scores[:k], ordinals[:k]

    def _among(self, query: tantivy.Query, allowed: Bitmap) -> tantivy.Query:
        members = tantivy.Query.term_set_query(self._schema, ORDINAL, allowed.ordinals().tolist())
        unscored = tantivy.Query.const_score_query(members, 0.0)
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, unscored)])

    def _ranked(self, query: tantivy.Query, limit: int) -> tuple[Floats, Ordinals]:
        return _in_order(*self._found(query, limit))

    def _found(self, query: tantivy.Query, limit: int) -> tuple[Floats, Ordinals]:
        """The best by score, equals in the engine's order."""
        hits = self._searcher.search(query, limit, count=False).hits
        numbers = self._searcher.fast_field_values(ORDINAL, [address for _, address in hits])
        scores = np.array([score for score, _ in hits], dtype=np.float32)
        ordinals = np.array(numbers, dtype=np.int64)
        if len(ordinals) and not 0 <= int(ordinals.min()) <= int(ordinals.max()) < self.rows:
            raise damaged(self._folder, "it names a document that is not there")
        return scores, ordinals

    def documents_with(self, column: str, term: str, *, whole_word: bool = False) -> int:
        """How many documents hold a stem, or a whole word, in a column; what makes it rare."""
        number = self.layout.columns.index(column)
        return self._searcher.doc_freq(word_field(number) if whole_word else stem_field(number), term)

    def average_length(self, column: str) -> float:
        """How many terms a document has in a column, on average."""
        return self._average_lengths[column]

    @cached_property
    def _average_lengths(self) -> dict[str, float]:
        return {column: self._averaged(number) for number, column in enumerate(self.layout.columns)}

    def _averaged(self, number: int) -> float:
        """The engine tells it only when it explains a score."""
        field = stem_field(number)
        frequent = self._searcher.terms_with_prefix(field, "", limit=1)
        if not frequent:
            return 1.0
        query = tantivy.Query.term_query(self._schema, field, frequent[0][0])
        (_, address), *_ = self._searcher.search(query, 1, count=False).hits
        explained = json.loads(query.explain(self._searcher, address).to_json())
        return _detail(explained, "avgdl") or 1.0


def _in_order(scores: Floats, ordinals: Ordinals) -> tuple[Floats, Ordinals]:
    order = np.lexsort((ordinals, -scores))
    return scores[order], ordinals[order]


def check_k(k: int) -> None:
    if not 0 < k <= MAX_K:
        raise InvalidInput(f"k = {k} is not from 1 to {MAX_K}", code="bad_k", hint="request fewer")


def column_weights(layout: TextLayout, weights: Mapping[str, float] | None) -> dict[str, float]:
    """Each column to search in with its weight; all of them, equally, by default."""
    if weights is None:
        return dict.fromkeys(layout.columns, 1.0)
    for column, weight in weights.items():
        if column not in layout.columns:
            raise InvalidInput(
                f"{column!r} is not a text column",
                code="bad_weights",
                hint=f"text columns: {', '.join(layout.columns)}",
            )
        if not (isinstance(weight, int | float) and 0 <= weight <= 1000):
            raise InvalidInput(f"the weight of {column!r} is {weight!r}", code="bad_weights", hint="from 0 to 1000")
    chosen = {column: float(weight) for column, weight in weights.items() if weight > 0}
    if not chosen:
        raise InvalidInput("no column has a weight", code="bad_weights", hint="give one more than 0")
    return chosen


def _detail(explained: object, name: str) -> float | None:
    if not isinstance(explained, dict):
        return None
    if str(explained.get("description", "")).startswith(f"{name},"):
        return float(explained["value"])
    found = (_detail(detail, name) for detail in explained.get("details") or ())
    return next((value for value in found if value is not None), None)
