"""The memory of judged statements is bounded."""

from __future__ import annotations

import pytest

from frazil.serving.sql.query import Statement
from frazil.serving.sql.statement_cache import StatementCache, judged_from


def test_the_least_used_is_forgotten() -> None:
    judged = StatementCache()
    for number in range(1000):
        judged.keep(f"q{number}", Statement(f"q{number}", ()))
    assert judged.get("q0") is not None
    judged.keep("one more", Statement("one more", ()))
    assert judged.get("q1") is None
    assert judged.get("q0") is not None


def test_long_texts_push_others_out() -> None:
    judged = StatementCache()
    texts = [f"{number}" + "x" * 100_000 for number in range(100)]
    for text in texts:
        judged.keep(text, Statement(text, ()))
        judged.keep(text, Statement(text, ()))
    kept = [text for text in texts if judged.get(text) is not None]
    assert kept == texts[-len(kept) :]
    assert 80 <= len(kept) <= 84


def test_a_text_larger_than_the_cache_is_not_kept() -> None:
    judged = StatementCache()
    judged.keep("small", Statement("small", ()))
    judged.keep("x" * (9 << 20), Statement("x" * (9 << 20), ()))
    assert judged.get("x" * (9 << 20)) is None and judged.get("small") is not None


@pytest.mark.parametrize("report", [{}, {"sql": "x"}, {"sql": "x", "tables": [{}]}, {"sql": "x", "tables": 3}])
def test_nonsense_of_a_worker_is_noticed(report: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        judged_from(report)
