"""What every test may rely on: a clean environment and one Hypothesis profile. Servers live beside their tests."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import settings

from tests.order import longest_first

# Servers and the Spark session are started once, by the first test that asks for them.
pytest_plugins = ["tests.lake_fixtures", "tests.store_fixtures"]

# Cores are shared with real servers, so the time of one example says nothing. In CI the examples are the same in every
# run: a red build is about the commit, while the runs at home go on searching.
settings.register_profile("frazil", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("frazil")

MEMORY_DISK = Path("/dev/shm")
ROOM_BYTES = 8 << 30
"""The whole suite has at most 3 GB of files at a time."""


def pytest_configure(config: pytest.Config) -> None:
    """Forget the settings of whoever runs the tests, before any module reads one at import."""
    for name in [name for name in os.environ if name.startswith("FRAZIL_")]:
        del os.environ[name]
    # A shell lets what it runs in the background ignore Ctrl-C, and so would the programs that tests end by it.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TMPDIR" not in os.environ and _has_room(MEMORY_DISK):
        # Everything is synced as in earnest, and nothing here has to survive the machine: a busy disk took half of the
        # time of many tests. What a power cut leaves is tested on a disk of its own: tests/bus/test_power_cut.py.
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY_DISK)


def _has_room(disk: Path) -> bool:
    """Whether it is there, may hold programs (the JVM unpacks libraries), and leaves memory for the JVMs."""
    try:
        found = os.statvfs(disk)
        memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(memory["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return False
    is_open = not found.f_flag & os.ST_NOEXEC and os.access(disk, os.W_OK)
    return is_open and min(found.f_bavail * found.f_frsize, available - (4 << 30)) >= ROOM_BYTES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)
