"""Every benchmark, as small as it goes: one well-formed line, from real parts. How fast they are is not asked here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.quick_jvm import OPTIONS

FIELDS = {"bench", "figure", "control", "ratio", "goal", "reached", "machine", "command"}


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    """The only line of standard output."""
    command = [sys.executable, "-m", "frazil", "bench", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "JDK_JAVA_OPTIONS": OPTIONS},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 1, lines
    report: dict[str, Any] = json.loads(lines[0])
    assert set(report) == FIELDS
    assert report["bench"] == arguments[0]
    assert report["command"] == f"frazil bench {' '.join(arguments)}"
    assert report["machine"]["cores"] >= 1 and report["machine"]["load_before"] >= 0
    assert isinstance(report["reached"], bool) and report["control"]["what"]
    assert list(folder.glob("frazil-bench-*")) == [], "it leaves nothing behind"
    return report


@pytest.mark.slow
def test_ingest(tmp_path: Path) -> None:
    report = bench(tmp_path, "ingest", "--events", "4000", "--rounds", "1")
    figure, control = report["figure"], report["control"]
    assert figure["events"] == 4000 and figure["p50_s"] <= figure["p99_s"]
    assert report["ratio"] == pytest.approx(figure["events_per_s"] / control["events_per_s"], rel=0.01)


@pytest.mark.slow
@pytest.mark.spark
def test_commit(tmp_path: Path) -> None:
    report = bench(tmp_path, "commit", "--events", "5000", "--rounds", "1")
    figure, control = report["figure"], report["control"]
    assert figure["rows"] == 5000
    assert set(figure["profile_s"]) == set("read decode hash judge stage audit sync publish trim".split())
    assert figure["profile_s"]["stage"] <= figure["seconds"]
    assert report["ratio"] == pytest.approx(control["seconds"] / figure["seconds"], rel=0.01)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
def test_growth(tmp_path: Path) -> None:
    report = bench(tmp_path, "growth", "--commits", "6", "--young", "2", "--measured", "2")
    figure, control = report["figure"], report["control"]
    assert [point["commit"] for point in figure["curve"]] == [1, 2, 3, 4, 5, 6]
    assert [point["snapshots"] for point in figure["curve"]] == [1, 2, 3, 4, 5, 6]
    assert all(point["metadata_bytes"] > 0 and point["manifests"] > 0 for point in figure["curve"])
    assert report["ratio"] == pytest.approx(figure["seconds"] / control["seconds"], rel=0.01)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
def test_freshness(tmp_path: Path) -> None:
    report = bench(tmp_path, "freshness", "--events", "2", "--rounds", "2")
    figure, control = report["figure"], report["control"]
    assert figure["events"] == 2 and figure["p50_s"] <= figure["p99_s"] <= figure["max_s"]
    assert report["ratio"] == pytest.approx(figure["p50_s"] / control["p50_s"], rel=0.01)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
def test_memory(tmp_path: Path) -> None:
    report = bench(tmp_path, "memory", "--events", "1000", "--idle-seconds", "0")
    parts = report["figure"]["parts"]
    assert set(parts) == {"supervisor", "bus", "gateway", "pipeline", "pipeline (java)"}
    assert sum(parts.values()) == report["figure"]["bytes"] and min(parts.values()) > 0
