"""Hits as JSON: their values are those that an answer to SQL would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from frazil.gateway.search.search_plan import SearchPlan
from frazil.serving.search import Hit, Searchable, SearchResult
from frazil.serving.sql.worker import DuckType, cells, parse_type, sql_type

# Whose Python values are those of JSON.
_AS_THEY_ARE = (pa.string(), pa.large_string(), pa.int64(), pa.int32(), pa.bool_())
_RANKS_FROM = 61
"""The score of a first place in a ranking, as hybrid searches count it, is one by this."""

Row = Mapping[str, Any]


def told_rows(rows: Sequence[Row], schema: pa.Schema, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with every value as SQL's JSON has it."""
    if not rows:
        return []
    written = [_column(rows, name, *_conversion(schema.field(name).type)) for name in columns]
    return (
        [dict(zip(columns, values, strict=True)) for values in zip(*written, strict=True)]
        if columns
        else [{} for _ in rows]
    )


def _column(rows: Sequence[Row], name: str, kind: pa.DataType, written_as: DuckType | None) -> list[Any]:
    values = [row[name] for row in rows]
    return values if written_as is None else cells(pa.array(values, kind), written_as)


@lru_cache(maxsize=256)
def _conversion(kind: pa.DataType) -> tuple[pa.DataType, DuckType | None]:
    return kind, None if kind in _AS_THEY_ARE else parse_type(sql_type(kind))


def told_hits(
    found: SearchResult, rows: Sequence[Mapping[str, Any]], searchable: Searchable, question: SearchPlan
) -> list[dict[str, Any]]:
    """`rows` has what the caller may see of each hit: the key, and the columns that are shown."""
    told = []
    for place, (hit, row) in enumerate(zip(found.hits, rows, strict=True), start=question.ask.offset):
        score = 1 / (_RANKS_FROM + place) if question.by_rank else hit.score
        if question.min_score is not None and score < question.min_score:
            break
        told.append(_hit(hit, score, row, searchable, question))
    return told


def _hit(hit: Hit, score: float, row: Row, searchable: Searchable, question: SearchPlan) -> dict[str, Any]:
    key = [row[name] for name in searchable.key]
    told: dict[str, Any] = {"id": key[0] if len(key) == 1 else key}
    if searchable.key != ("_id",):
        told["key"] = dict(zip(searchable.key, key, strict=True))
    told |= {
        "score": score,
        "vector_score": hit.vector_score,
        "text_score": None if question.selection.where is not None else hit.text_score,
        "fresh": hit.fresh,
        "row": {name: row[name] for name in question.columns},
    }
    if hit.chunk is not None:
        chunk = hit.chunk
        told["chunk"] = {"number": chunk.number, "start": chunk.start, "end": chunk.end, "text": chunk.text}
    if hit.snippet is not None:
        told["snippet"] = {
            "text": hit.snippet.text,
            "start": hit.snippet.start,
            "marks": [list(mark) for mark in hit.snippet.marks],
            "column": hit.snippet_column or None,
        }
    return told
