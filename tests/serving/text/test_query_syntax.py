"""What people type: each form is understood, and nothing is an error."""

from __future__ import annotations

import random

import pytest

from frazil.serving.text.query_syntax import MAX_CHARACTERS, MAX_TERMS, Group, Must, Node, Words, read_query

COLUMNS = ("title", "body")


def told(node: Node) -> str:
    """A tree as text: `+` must, `-` must not."""
    if isinstance(node, Group):
        signs = {Must.SHOULD: "", Must.MUST: "+", Must.NOT: "-"}
        return "(" + " ".join(signs[must] + told(clause) for must, clause in node.clauses) + ")"
    column = f"{node.column}:" if node.column else ""
    text = f'"{node.text}"' if node.phrase else node.text
    return column + text + ("*" if node.prefix else "")


@pytest.mark.parametrize(
    ("typed", "tree"),
    [
        ("", "()"),
        ("tea cake", "(tea cake)"),
        ('"green tea"', '("green tea")'),
        ('"green te"*', '("green te"*)'),
        ("tea*", "(tea*)"),
        ("title:tea", "(title:tea)"),
        ('title:"green tea" body:ca*', '(title:"green tea" body:ca*)'),
        ("title:(green tea)", "((title:green title:tea))"),
        ("+tea -cake", "(+tea -cake)"),
        ("tea AND cake", "(+tea +cake)"),
        ("tea AND NOT cake", "(+tea -cake)"),
        ("NOT cake", "(-cake)"),
        ("tea OR cake", "(tea cake)"),
        ("tea AND cake OR jam", "((+tea +cake) jam)"),
        ("tea OR (cake AND jam)", "(tea (+cake +jam))"),
        ("-(cake jam) tea", "(-(cake jam) tea)"),
        ("and or not", "(and or not)"),
        ("C++ foo-bar x_y", "(C++ foo-bar x_y)"),
        ("tea -", "(tea)"),
    ],
)
def test_each_form_is_understood(typed: str, tree: str) -> None:
    assert told(read_query(typed, COLUMNS).root) == tree


@pytest.mark.parametrize(
    ("typed", "tree", "said"),
    [
        ('"green tea', '("green tea")', "without its end"),
        ("tea)", "(tea)", "without `(`"),
        ("(tea", "((tea))", "without `)`"),
        ("author:smith", "(author smith)", "no text column 'author'"),
        ("*", "()", "no letter"),
        ("tea !!!", "(tea)", "no letter"),
        ("((((((((((((((((tea", "", "deeper than"),
        ("a " * MAX_CHARACTERS, "", "after 2000 characters"),
        (" ".join(f"w{i}" for i in range(MAX_TERMS + 5)), "", f"more than {MAX_TERMS}"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_told(typed: str, tree: str, said: str) -> None:
    query = read_query(typed, COLUMNS)
    assert any(said in reason for reason in query.ignored)
    assert not tree or told(query.root) == tree


def test_operators_alone_mean_nothing() -> None:
    for typed in ("AND", "OR", "NOT", "AND OR NOT", "()", "(())", "+", "-", "AND AND tea OR", '""', '"'):
        assert told(read_query(typed, COLUMNS).root) in ("()", "(tea)")


def test_excluded_words_are_not_shown() -> None:
    asked = read_query("tea -cake (jam NOT bread)", COLUMNS).words()
    assert [word.text for word in asked] == ["tea", "jam"]


def test_nothing_that_is_typed_is_an_error() -> None:
    rng = random.Random(4)
    pieces = [
        *'()"+-:*^~[]{}\\/!?&| \t\n\0',
        "AND",
        "OR",
        "NOT",
        "title:",
        "body:",
        "nope:",
        "tea",
        "日本",
        "é",
        "\ud800",
    ]
    for _ in range(5000):
        typed = "".join(rng.choice(pieces) + rng.choice(["", " "]) for _ in range(rng.randrange(30)))
        query = read_query(typed, COLUMNS)
        assert all(isinstance(word, Words) for word in query.words())
