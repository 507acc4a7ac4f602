"""Links: the file of the vault that a link leads to, found as Obsidian does."""

from __future__ import annotations

import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Iterable

from frazil.vault.markdown import NoteLink

NOTE_SUFFIXES = (".md", ".markdown")


def is_note(path: str) -> bool:
    return path.lower().endswith(NOTE_SUFFIXES)


def folded(path: str) -> str:
    """One text for names that some file systems, and Obsidian, take for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


class VaultIndex:
    """All files of a vault, to be found by path or by name."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = set(paths)
        self._by_name: dict[str, list[str]] = defaultdict(list)
        # The shortest path comes first: that is the one that is meant where several have the name.
        for path in sorted(self._paths, key=lambda path: (path.count("/"), len(path), path)):
            for name in {path, _without_suffix(path)}:
                self._by_name[folded(posixpath.basename(name))].append(path)

    def resolve(self, source: str, link: NoteLink) -> str | None:
        """The path that a link in `source` leads to; None where there is no such file, or it is outside."""
        if link.kind == "url":
            return None
        if not link.target:
            return source if link.anchor else None
        target = link.target
        if target.startswith("/"):
            return self._at(posixpath.normpath(target.lstrip("/")))
        sibling = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if target.startswith(("./", "../")):
            return self._at(sibling)
        found = self._at(sibling) if link.by_path else None
        return found or self._at(posixpath.normpath(target)) or self._ending_in(target)

    def _at(self, path: str) -> str | None:
        names = (path, *(path + suffix for suffix in NOTE_SUFFIXES))
        exact = next((name for name in names if name in self._paths), None)
        if exact is not None:
            return exact
        wanted = {folded(name) for name in names}
        return next((found for found in self._named(path) if folded(found) in wanted), None)

    def _ending_in(self, target: str) -> str | None:
        end = "/" + folded(target)
        for found in self._named(target):
            if f"/{folded(found)}".endswith(end) or f"/{folded(_without_suffix(found))}".endswith(end):
                return found
        return None

    def _named(self, path: str) -> list[str]:
        return self._by_name.get(folded(posixpath.basename(path)), [])


def _without_suffix(path: str) -> str:
    return path.rpartition(".")[0] if is_note(path) else path
