"""Real language to search in: sentences of the documentation that installed packages and the standard library ship."""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from frazil.errors import Unavailable

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_ENDS = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_SHORTEST, _LONGEST = 40, 400
_LARGEST_FILE = 400_000


def sentences(count: int) -> list[str]:
    """So many different sentences of 40 to 400 characters, in the order of the files."""
    found: dict[str, None] = {}
    for text in _texts():
        pieces = (" ".join(piece.split()) for piece in _ENDS.split(text))
        found.update(dict.fromkeys(piece for piece in pieces if _SHORTEST <= len(piece) <= _LONGEST))
        if len(found) >= count:
            return list(found)[:count]
    raise Unavailable(
        f"the documentation on this machine has {len(found):,} sentences, and {count:,} are needed",
        code="too_little_text",
        hint="ask for fewer rows, or install more packages beside frazil",
    )


def _texts() -> Iterator[str]:
    for root in ("stdlib", "purelib"):
        for path in sorted(Path(sysconfig.get_paths()[root]).rglob("*")):
            is_read = path.suffix in (".py", ".rst", ".md") or path.name == "METADATA"
            # The folder of the packages lies below that of the standard library, and comes by itself.
            if not is_read or (root == "stdlib" and "site-packages" in path.parts):
                continue
            try:
                if path.stat().st_size > _LARGEST_FILE:
                    continue
                content = path.read_text(errors="ignore")
            except OSError:
                continue
            yield from _docstrings(content) if path.suffix == ".py" else (content,)


def _docstrings(source: str) -> Iterator[str]:
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return  # a template, or a test of what does not parse
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text
