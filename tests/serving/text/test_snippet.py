"""Snippets: safe, marked, around what was asked for."""

from __future__ import annotations

import html
import random
import re

import pytest

from frazil.serving.text.query_syntax import read_query
from frazil.serving.text.snippet import TextSnippet, best_snippet
from tests.serving.sentences import sentences


def shown(query: str, text: str, *, column: str = "body", characters: int = 200) -> TextSnippet:
    return best_snippet(
        read_query(query, ("title", "body")), text, column=column, language="english", characters=characters
    )


@pytest.mark.parametrize(
    ("query", "text", "page"),
    [
        ("run", "She runs & is <b>running</b>.", "She <b>runs</b> &amp; is &lt;b&gt;<b>running</b>&lt;/b&gt;."),
        ("tea*", "Teapots, tea, steam", "<b>Teapots</b>, <b>tea</b>, steam"),
        ("cafe", "Das Café – nichts", "Das <b>Café</b> – nichts"),
        ("tea -cake", "tea and cake", "<b>tea</b> and cake"),
        ("title:tea", "tea", "tea"),
        ("body:tea", "tea", "<b>tea</b>"),
        ("zzz", "<script>alert('x')</script>", "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"),
        ("tea", "", ""),
    ],
)
def test_html(query: str, text: str, page: str) -> None:
    assert shown(query, text).html() == page


def test_it_is_taken_from_where_most_of_the_words_are() -> None:
    text = "tea " + "nothing here " * 40 + "a fine green tea from Japan " + "nothing there " * 40
    found = shown("green tea", text, characters=100)
    assert len(found.text) <= 100
    assert "green tea from Japan" in found.text
    assert [found.text[a:b] for a, b in found.marks] == ["green", "tea"]


def test_offsets_are_those_of_the_text() -> None:
    rng = random.Random(3)
    for _ in range(300):
        text = " ".join(rng.sample(sentences(), 6))
        words = rng.sample(re.findall(r"\w+", text), 2)
        characters = rng.choice([20, 60, 200, 10_000])
        found = shown(" ".join(words), text, characters=characters)
        assert found.text == text[found.start : found.start + len(found.text)]
        assert len(found.text) <= characters
        assert found.marks or all(len(word) > characters for word in words)
        assert all(0 <= a < b <= len(found.text) for a, b in found.marks)
        assert html.unescape(found.html().replace("<b>", "").replace("</b>", "")) == found.text


def test_a_very_long_text_costs_no_more() -> None:
    assert shown("tea", "x" * 10_000_000 + " tea").text == "x" * 200
