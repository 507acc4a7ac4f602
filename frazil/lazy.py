"""Lazy doors: the names that a package exports, each imported when it is first used.

A door lists its names once, as imports under `if TYPE_CHECKING:`. Type checkers and editors read them there, and so
does `lazy_door`. PyIceberg, Arrow and DuckDB take seconds to import: a command that needs none of them waits for none.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_door(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` and the `__all__` of a package, from the imports that its file shows to type checkers."""
    homes = _homes(package)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted(homes)


def _homes(package: str) -> dict[str, str]:
    file = sys.modules[package].__file__
    assert file is not None, "a package with a door is a folder with an __init__.py"
    guarded = [node for node in ast.parse(Path(file).read_text()).body if isinstance(node, ast.If)]
    imports = [node for block in guarded for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names if node.module}
