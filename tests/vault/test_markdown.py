"""Headings, tags and links as a reader of the note sees them; none of them from code."""

from __future__ import annotations

import pytest

from frazil.vault.markdown import NoteLink, read


def links(body: str) -> list[tuple[str, str, str | None, str | None, int]]:
    return [(link.kind, link.target, link.anchor, link.display, link.line) for link in read(body).links]


def test_headings_of_both_forms_with_their_lines() -> None:
    body = "# One *two* `three`\r\n\r\nSet\r\next\r\n===\r\n\r\n> ## One two three!\n\n"
    body += "```\n# no\n```\n#no\n### \n## Über ß_-x\n"
    found = [
        (heading.level, heading.text, heading.slug, heading.line) for heading in read(body, first_line=10).headings
    ]
    assert found == [
        (1, "One two three", "one-two-three", 10),
        (1, "Set ext", "set-ext", 12),
        (2, "One two three!", "one-two-three-1", 16),
        (3, "", "", 22),
        (2, "Über ß_-x", "über-ß_-x", 23),
    ]


@pytest.mark.parametrize(
    ("body", "tags"),
    [
        ("#a text #b/c #d-e_f, (#g) #h.", ["a", "b/c", "d-e_f", "g", "h"]),
        ("#1 #2024 #y2024 x#no a&#35;no ## #", ["y2024"]),
        ("`#no` ``#no`` \\#no [x](#no) <http://x/#no>", []),
        ("    #no\n\n```\n#no\n```\n\n<!-- #no -->\n\n~~~md\n#no\n~~~\n", []),
        ("- #in_list\n> #quoted\n\n**#bold** #日本 #ä #a #a", ["in_list", "quoted", "bold", "日本", "ä", "a"]),
        ("#_private_ #x__y__z", ["_private_", "x__y__z"]),
    ],
)
def test_tags(body: str, tags: list[str]) -> None:
    assert list(read(body).tags) == tags


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("[[Note]]", [("wiki", "Note", None, None, 1)]),
        ("a\nb [[x/My note#A b|shown]]", [("wiki", "x/My note", "A b", "shown", 2)]),
        ("[[a#^block]] [[#here]]", [("wiki", "a", "^block", None, 1), ("wiki", "", "here", None, 1)]),
        ("![[p.png|100]]", [("embed", "p.png", None, "100", 1)]),
        ("[[_a_ *b*]]", [("wiki", "_a_ *b*", None, None, 1)]),
        ("[t *e*](a%20b.md#c%20d)", [("markdown", "a b.md", "c d", "t e", 1)]),
        ("[t](<a b.md> 'title')", [("markdown", "a b.md", None, "t", 1)]),
        ("![alt](i.png)", [("embed", "i.png", None, "alt", 1)]),
        ("[t][r]\n\n[r]: ../up.md", [("markdown", "../up.md", None, "t", 1)]),
        ("x\ny\n[u](https://e.org/#a) <mailto:a@b.c>", [
            ("url", "https://e.org/#a", None, "u", 3), ("url", "mailto:a@b.c", None, "mailto:a@b.c", 3)]),
        ("`[[no]]` \\[[no]] \n\n    [[no]]\n\n```\n[[no]] [no](no)\n```\n<!-- [[no]] -->", []),
        ("[[]] [[a\nb]] [[a", []),
        ("| a |\n|---|\n| [[x\\|y]] |", [("wiki", "x", None, "y", 3)]),
        ("[[a]](b.md)", [("wiki", "a", None, None, 1)]),
        ("`a\nb` [[c]]", [("wiki", "c", None, None, 2)]),
    ],
)  # fmt: skip
def test_links(body: str, found: list[tuple[str, str, str | None, str | None, int]]) -> None:
    assert links(body) == found


def test_brackets_without_end_take_time_in_proportion() -> None:
    """A scan to the end of the text from each bracket would take minutes here."""
    assert read("[[" * 20_000).links == ()
    assert read("![](" * 20_000).links == ()


def test_a_link_knows_whether_it_is_a_path() -> None:
    assert read("[a](b.md)").links[0] == NoteLink("markdown", "b.md", None, "a", 1, by_path=True)
