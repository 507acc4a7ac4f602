"""Query tree as a query of tantivy. A word without a column is looked for in each; the best one counts."""

from __future__ import annotations

from collections.abc import Mapping

import tantivy

from frazil.serving.text.analysis import stems, words
from frazil.serving.text.layout import TextLayout, stem_field, word_field
from frazil.serving.text.query_syntax import Group, Must, Node, Words

# What the other columns add to the best one, so that of two equals the one that has it twice comes first.
TIE_BREAKER = 0.1
# The most frequent words that begin so; a prefix of one letter would otherwise read a tenth of the index.
MAX_PREFIX_WORDS = 50

_OCCUR = {Must.SHOULD: tantivy.Occur.Should, Must.MUST: tantivy.Occur.Must, Must.NOT: tantivy.Occur.MustNot}


class Compiler:
    """For one searcher, and for columns with weights."""

    def __init__(
        self, schema: tantivy.Schema, searcher: tantivy.Searcher, layout: TextLayout, weights: Mapping[str, float]
    ) -> None:
        self._schema = schema
        self._searcher = searcher
        self._layout = layout
        self._weights = weights
        self._stems = stems(layout.language)
        self._words = words(layout.language)

    def query(self, root: Group, *, minimum_should: int | None = None) -> tantivy.Query | None:
        """None for an empty query."""
        return self._group(root, minimum_should)

    def _node(self, node: Node) -> tantivy.Query | None:
        return self._group(node, None) if isinstance(node, Group) else self._in_columns(node)

    def _group(self, group: Group, minimum_should: int | None) -> tantivy.Query | None:
        clauses = []
        for must, node in group.clauses:
            query = self._node(node)
            if query is not None:
                clauses.append((_OCCUR[must], query))
        if not clauses:
            return None
        optional = sum(must is tantivy.Occur.Should for must, _ in clauses)
        if all(must is tantivy.Occur.MustNot for must, _ in clauses):
            # "Everything but": the engine finds nothing by exclusions alone.
            clauses.append((tantivy.Occur.Must, tantivy.Query.const_score_query(tantivy.Query.all_query(), 0.0)))
        needed = None if minimum_should is None else min(minimum_should, optional)
        return tantivy.Query.boolean_query(clauses, minimum_number_should_match=needed or None)

    def _in_columns(self, term: Words) -> tantivy.Query | None:
        columns = [term.column] if term.column is not None else list(self._weights)
        queries = []
        for column in columns:
            query = self._in_column(term, column)
            if query is None:
                return None
            weight = self._weights.get(column, 1.0)
            queries.append(query if weight == 1.0 else tantivy.Query.boost_query(query, weight))
        return queries[0] if len(queries) == 1 else tantivy.Query.disjunction_max_query(queries, TIE_BREAKER)

    def _in_column(self, term: Words, column: str) -> tantivy.Query | None:
        number = self._layout.columns.index(column)
        whole = self._words.terms(term.text)
        if not whole:
            return None
        if term.prefix and len(whole) == 1:
            return self._prefix(whole[0], word_field(number))
        terms = self._stems.terms(term.text)
        if len(terms) == 1:
            return tantivy.Query.term_query(self._schema, stem_field(number), terms[0])
        if term.prefix:
            return tantivy.Query.phrase_prefix_query(self._schema, stem_field(number), [*terms])
        return tantivy.Query.phrase_query(self._schema, stem_field(number), [*terms])

    def _prefix(self, begun: str, field: str) -> tantivy.Query:
        known = self._searcher.terms_with_prefix(field, begun, limit=MAX_PREFIX_WORDS)
        if not known:
            return tantivy.Query.empty_query()
        every = [tantivy.Query.term_query(self._schema, field, term, index_option="basic") for term, _ in known]
        return every[0] if len(every) == 1 else tantivy.Query.disjunction_max_query(every)
