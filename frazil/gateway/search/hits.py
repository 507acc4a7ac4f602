"""Hits as JSON: their values are those that an answer to SQL would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from frazil.gateway.search.search_plan import SearchPlan
from frazil.serving.search import Hit, SearchResult
from frazil.serving.sql.worker import DuckType, cells, parse_type, sql_type

# Whose Python values are those of JSON.
_AS_THEY_ARE = (pa.string(), pa.large_string(), pa.int64(), pa.int32(), pa.bool_())
_RANKS_FROM = 61
"""The score of a first place in a ranking, as hybrid searches count it, is one by this."""

Row = Mapping[str, Any]


def rows_as_json(rows: Sequence[Row], schema: pa.Schema, columns: Sequence[str]) -> list[dict[str, Any]]:
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


def hits_as_json(found: SearchResult, rows: Sequence[Row], plan: SearchPlan) -> list[dict[str, Any]]:
    """`rows` has what the caller may see of each hit: the key, and the columns that are shown."""
    hits = []
    for place, (hit, row) in enumerate(zip(found.hits, rows, strict=True), start=plan.offset):
        score = 1 / (_RANKS_FROM + place) if plan.by_rank else hit.score
        if plan.min_rank_score is not None and score < plan.min_rank_score:
            break
        hits.append(_hit(hit, score, row, plan))
    return hits


def _hit(hit: Hit, score: float, row: Row, plan: SearchPlan) -> dict[str, Any]:
    key = [row[name] for name in plan.key]
    body: dict[str, Any] = {"id": key[0] if len(key) == 1 else key}
    if plan.key != ("_id",):
        body["key"] = dict(zip(plan.key, key, strict=True))
    body |= {
        "score": score,
        "vector_score": hit.vector_score,
        "text_score": None if plan.selection.where is not None else hit.text_score,
        "fresh": hit.fresh,
        "row": {name: row[name] for name in plan.shown},
    }
    if hit.chunk is not None:
        chunk = hit.chunk
        body["chunk"] = {"number": chunk.number, "start": chunk.start, "end": chunk.end, "text": chunk.text}
    if hit.snippet is not None:
        body["snippet"] = {
            "text": hit.snippet.text,
            "start": hit.snippet.start,
            "marks": [list(mark) for mark in hit.snippet.marks],
            "column": hit.snippet_column or None,
        }
    return body
