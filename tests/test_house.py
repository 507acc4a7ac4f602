"""Rules of the house: what keeps a newcomer's first guess right."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_FILES = 25
PRODUCT = sorted((ROOT / "frazil").rglob("*.py"))
PARSED = {path: ast.parse(path.read_text()) for path in PRODUCT}
TOUCHED = re.compile(r"<!-- touch: begin -->(.*)<!-- touch: end -->", re.DOTALL)


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_folder_is_too_large_to_scan() -> None:
    files = Counter(path.parent for path in PRODUCT)
    assert {place(folder): count for folder, count in files.items() if count > MAX_FILES} == {}


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every `from frazil… import name` of a module, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("frazil."):
            for alias in node.names:
                yield node.module, alias.name


def test_a_door_exports_no_name_of_its_modules() -> None:
    """`from frazil.x import y` would give the function or the module y, whichever was imported last."""
    clashes = []
    for path, tree in PARSED.items():
        if path.name == "__init__.py" and "lazy_door" in path.read_text():
            modules = {other.stem for other in path.parent.glob("*.py")}
            clashes += [f"{place(path)}: {name}" for _, name in imports(tree) if name in modules]
    assert clashes == []


def test_what_to_touch_for_ten_additions_is_there() -> None:
    found = TOUCHED.search((ROOT / "CONTRIBUTING.md").read_text())
    assert found is not None
    rows = [row for row in found[1].strip().splitlines()[2:] if row.startswith("|")]
    assert len(rows) >= 10
    missing = []
    for row in rows:
        paths = re.findall(r"`([^`]+)`", row)
        assert paths, row
        missing += [path for path in paths if not (ROOT / path.partition(":")[0]).exists()]
    assert missing == []
