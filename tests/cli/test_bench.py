"""`frazil bench` runs the benchmarks of the clone that it stands in."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import frazil
from benchmarks import freshness, report
from tests.cli.conftest import Run


class _Measured:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def body(self) -> dict[str, Any]:
        return {"bench": "freshness", "options": self._options}


def test_a_clone_has_its_benchmarks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "run", lambda **options: _Measured(options))
    monkeypatch.setattr(report, "figures_on_stdout", lambda: nullcontext(sys.stdout))
    ran = run("bench", "freshness", "--events", "7")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == {"bench": "freshness", "options": {"events": 7, "rounds": 4}}


def test_elsewhere_the_way_to_a_clone_is_said(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frazil, "__file__", str(tmp_path / "site-packages" / "frazil" / "__init__.py"))
    ran = run("bench", "ingest")
    assert (ran.code, ran.out) == (2, "")
    error, hint = ran.err.splitlines()
    assert error == f"Error: frazil is installed in {tmp_path / 'site-packages'} without its benchmarks"
    assert hint.startswith("Try:   clone the repository")
    assert run("bench", "ingest", "--help").code == 0
