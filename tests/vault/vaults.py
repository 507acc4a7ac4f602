"""Folders of notes for the tests: written, read back, and made up at random."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

from frazil.vault.links import folded
from frazil.vault.note_paths import PathRefused, check_path, collisions


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


def contents(root: Path) -> dict[str, bytes]:
    return {str(place.relative_to(root)): place.read_bytes() for place in root.rglob("*") if place.is_file()}


def _allowed(path: str) -> bool:
    try:
        check_path(path)
    except PathRefused:
        return False
    return True


_letters = st.characters(exclude_categories=["Cs"], exclude_characters="/\0")
_names = st.text(_letters, min_size=1, max_size=12) | st.sampled_from(
    ["a b", "ä", "a\u0308", "日本", "😀", "x'y\"z", "a\\b", "new\nline", "-rf", "50%20", "a#b", "[[c]]", "ſ", "ß"]
)
paths = (
    st.lists(_names, min_size=1, max_size=3)
    .flatmap(lambda parts: st.sampled_from([".md", ".MD", ".markdown"]).map(lambda end: "/".join(parts) + end))
    .filter(_allowed)
)

_values = st.sampled_from(
    """x 'x' "x" 007 0x1f 1.10 1e400 .5 -0 yes no true ~ 2024-01-02 2024-01-02T10:00:00+02:00 12:30 [a,b] {a:
    [1,{b: 'c'}] "#tag" !!binary|x &a|x *a |  < [ ] {} - ? @x `x` %x 123456789012345678901234567890""".split()
)
_keys = st.sampled_from("title tags tag aliases created date updated modified status Due-date weird: <<".split())
_lines = st.builds(lambda key, value: f"{key}: {value}", _keys, _values) | st.sampled_from(
    ["", "# comment", "\t", "- item", "...", "----", "tags:", "  - a", "  - '#b'", "a: |", "   text"]
)
_breaks = st.sampled_from(["\n", "\r\n", "\r"])
_blocks = st.builds(
    lambda lines, end, open_, close: f"---{open_}{end}" + "".join(f"{line}{end}" for line in lines) + f"---{close}",
    st.lists(_lines, max_size=6),
    _breaks,
    st.sampled_from(["", " ", "\t"]),
    st.sampled_from(["", "\n", "\r\n", " \n", "\r", "-\n"]),
)
_marks = st.sampled_from(
    """# [[ ]] ![[ | ]( ) ` ``` ~~~ #tag #1 \\ * _ > - --- === <!-- --> <a> &amp; [x](y.md) [[a]] ![[b.png]]
    [[c#d|e]] [r] [r]:""".split()
)
_bodies = st.lists(st.text(_letters | st.just("/"), max_size=10) | _marks | _breaks | st.just(" "), max_size=20).map(
    "".join
)
files = st.builds(
    lambda bom, block, body: (("\ufeff" if bom else "") + block + body).encode(),
    st.booleans(),
    st.just("") | _blocks,
    _bodies,
)


def _apart(vault: dict[str, bytes]) -> dict[str, bytes]:
    colliding = collisions(vault)
    folders = {folded(path) for path in vault}
    return {
        path: content
        for path, content in vault.items()
        if path not in colliding and not any(folded(path).startswith(f"{other}/") for other in folders)
    }


vaults = st.dictionaries(paths, files, max_size=6).map(_apart)
