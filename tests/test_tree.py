"""Promises of the tree itself: what may be in a file, how long it may be, and that the locks are what we asked for."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.txt", "requirements-dev.txt")
MAX_LINES = 600

# Nobody's home directory, and not the place where this checkout happens to lie (unless that is as short as /src).
_PLACES = [r"/(?:root|(?:home|Users)/[\w.-]+)/", *([re.escape(str(ROOT))] if len(ROOT.parts) > 2 else [])]
ABSOLUTE_HOME = re.compile(rf"(?<![\w.}}~-])(?:{'|'.join(_PLACES)})")


def our_files() -> list[Path]:
    """The files of the tree that are, or are about to be, in version control."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        command = [git, "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split("\0")
        return [ROOT / name for name in names if name and (ROOT / name).is_file()]
    tops = ("frazil", "tests", "scripts", "docs", ".ci")
    below = [path for top in tops for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]
    return [path for path in (*ROOT.iterdir(), *below) if path.is_file() and not path.name.startswith(".setup.")]


def sources() -> list[Path]:
    found = sorted((ROOT / "frazil").rglob("*.py"))
    assert found
    return found


def crash_points() -> Iterator[tuple[str | None, str]]:
    """Every call of `crash_point` in the code: its literal name (None if it has none) and its place."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if called == "crash_point":
                name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
                yield name if isinstance(name, str) else None, f"{path.relative_to(ROOT)}:{node.lineno}"


def pins(lock: str) -> dict[str, list[Requirement]]:
    """The pinned requirements of a lock by name; a name has two where Python versions need different releases."""
    found = defaultdict(list)
    for line in (ROOT / lock).read_text().splitlines():
        if line[:1].isalnum():
            pin = Requirement(line.rstrip(" \\"))
            found[pin.name].append(pin)
    assert found
    return found


def asked_for(*inputs: str) -> list[Requirement]:
    lines = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    for name in inputs:
        lines += [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("name", [*LOCKS, "requirements.in", "requirements-dev.in"])
def test_requirements_name_no_address(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_hash(lock: str) -> None:
    entries = re.split(r"\n(?=\w)", (ROOT / lock).read_text())
    without = [entry.split()[0] for entry in entries if entry[:1].isalnum() and "--hash=sha256:" not in entry]
    assert without == []


@pytest.mark.parametrize(
    ("lock", "inputs"),
    [("requirements.txt", ["requirements.in"]), ("requirements-dev.txt", ["requirements.in", "requirements-dev.in"])],
)
def test_locks_hold_what_was_asked_for(lock: str, inputs: list[str]) -> None:
    """`make lock` was run after the last change of a requirement."""
    locked = pins(lock)
    for wanted in asked_for(*inputs):
        versions = [next(iter(pin.specifier)).version for pin in locked.get(wanted.name, [])]
        assert versions, f"{lock} lacks {wanted}"
        assert all(wanted.specifier.contains(version) for version in versions), f"{lock} has {versions}, not {wanted}"


def test_tests_run_with_the_versions_that_users_get() -> None:
    development = pins("requirements-dev.txt")
    different = {name: pin for name, pin in pins("requirements.txt").items() if development.get(name) != pin}
    assert different == {}


def test_no_file_names_a_place_on_one_machine() -> None:
    found = []
    files = our_files()
    assert ROOT / "pyproject.toml" in files
    for path in files:
        text = path.read_text(errors="replace")
        found += [
            f"{path.relative_to(ROOT)}:{number}"
            for number, line in enumerate(text.splitlines(), start=1)
            if ABSOLUTE_HOME.search(line)
        ]
    assert found == []


def test_readme_shows_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_files_stay_readable_in_one_sitting() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_every_crash_point_has_a_name_of_its_own() -> None:
    """Tests kill the process at a point by its name, so a name must be a literal and mean one place."""
    places = defaultdict(list)
    for name, place in crash_points():
        places[name].append(place)
    assert places.pop(None, []) == []
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("script", [".ci/run", "scripts/setup.sh", "scripts/lock.sh"])
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
