"""Where links lead in a vault, as Obsidian finds it."""

from __future__ import annotations

import pytest

from frazil.vault.links import VaultIndex
from frazil.vault.markdown import read

FILES = [
    "Home.md",
    "a/Deep.md",
    "a/b/Same.md",
    "a/Same.md",
    "c/Same.md",
    "c/Other note.md",
    "c/Ünï.md",
    "img/Pic.png",
    "v1.2.md",
    "d/e/Long.markdown",
]


@pytest.mark.parametrize(
    ("source", "link", "path"),
    [
        ("c/x.md", "[[Home]]", "Home.md"),
        ("c/x.md", "[[home.MD]]", "Home.md"),
        ("c/x.md", "[[Deep]]", "a/Deep.md"),
        ("c/x.md", "[[Same]]", "a/Same.md"),
        ("c/x.md", "[[b/Same]]", "a/b/Same.md"),
        ("c/x.md", "[[c/same]]", "c/Same.md"),
        ("c/x.md", "[[./Same]]", "c/Same.md"),
        ("c/x.md", "[[other NOTE]]", "c/Other note.md"),
        ("c/x.md", "[[U\u0308ni\u0308]]", "c/Ünï.md"),
        ("c/x.md", "![[pic.png]]", "img/Pic.png"),
        ("c/x.md", "[[v1.2]]", "v1.2.md"),
        ("c/x.md", "[[Long]]", "d/e/Long.markdown"),
        ("c/x.md", "[[Nowhere]]", None),
        ("c/x.md", "[[eep]]", None),
        ("c/x.md", "[[../../etc/Home]]", None),
        ("c/x.md", "[[#Here]]", "c/x.md"),
        ("c/x.md", "[t](Same.md)", "c/Same.md"),
        ("c/x.md", "[t](../a/Same.md#x)", "a/Same.md"),
        ("c/x.md", "[t](/a/Same.md)", "a/Same.md"),
        ("c/x.md", "[t](a/Same.md)", "a/Same.md"),
        ("c/x.md", "[t](Other%20note)", "c/Other note.md"),
        ("c/x.md", "[t](../../Home.md)", None),
        ("c/x.md", "[t](https://Home.md)", None),
    ],
)
def test_resolving(source: str, link: str, path: str | None) -> None:
    (found,) = read(link).links
    assert VaultIndex([*FILES, source]).resolve(source, found) == path
