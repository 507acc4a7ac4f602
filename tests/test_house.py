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


def dotted(path: Path) -> str:
    """The name under which a file of the product is imported; that of its folder for a door."""
    relative = path.relative_to(ROOT).with_suffix("")
    return ".".join(relative.parent.parts if path.name == "__init__.py" else relative.parts)


MODULES = {dotted(path) for path in PRODUCT if path.name != "__init__.py"}
DOORS = {dotted(path): tree for path, tree in PARSED.items() if path.name == "__init__.py"}


def test_other_rooms_come_through_a_door() -> None:
    """Imports between rooms name the door of the room or of a part of it, never a module behind it."""
    past = [
        f"{place(path)}: from {module} import {name}"
        for path, tree in PARSED.items()
        for module, name in imports(tree)
        if module in MODULES and module.count(".") > 1 and module.split(".")[1] != path.relative_to(ROOT).parts[1]
    ]
    assert past == []


def bound(tree: ast.Module) -> set[str]:
    """The names that a module has: what it imports, defines and assigns, also under `if TYPE_CHECKING:`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_a_door_has_every_name_that_is_taken_from_it() -> None:
    """Type checkers believe a lazy door whatever it is asked for."""
    exported = {name: bound(tree) for name, tree in DOORS.items()}
    others = [path for folder in ("tests", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")]
    trees = {**PARSED, **{path: ast.parse(path.read_text()) for path in others}}
    missing = [
        f"{place(path)}: from {module} import {name}"
        for path, tree in trees.items()
        for module, name in imports(tree)
        if module in DOORS and name not in exported[module] and f"{module}.{name}" not in MODULES | DOORS.keys()
    ]
    assert missing == []


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in PARSED.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(place(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_docstring_of_a_module_begins_with_its_noun() -> None:
    """So that a listing of first lines is an index."""
    asking = []
    for path, tree in PARSED.items():
        first = (ast.get_docstring(tree) or "").split(" ")[0]
        if first in ("", "How", "What", "When", "Where", "Whether", "Which", "Who", "Why"):
            asking.append(f"{place(path)}: {first}")
    assert asking == []


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


NAMED = re.compile(r"`((?:\w+/)+\w+\.py)(?::\w+)?`")


def test_the_documentation_names_files_that_are_there() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    missing = [
        f"{place(page)}: {name}"
        for page in pages
        for name in NAMED.findall(page.read_text())
        if not (ROOT / name).exists() and not (ROOT / "frazil" / name).exists()
    ]
    assert missing == []
