"""What every test may rely on: a clean environment and the same random choices in every run.

Servers live beside their tests.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from tests.order import longest_first, mark_slow

# Servers and the Spark session are started once, by the first test that asks for them.
pytest_plugins = ["tests.lake_fixtures", "tests.store_fixtures"]

# Cores are shared with real servers, so the time of one example says nothing. The verdict of `make test` is about the
# commit: its examples are made from the text of the test, and none is kept from an earlier run. `make soak` searches on
# with `--hypothesis-profile=explore --hypothesis-seed=…`; what it finds becomes a test with a name.
settings.register_profile("fixed", deadline=None, print_blob=True, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("fixed")

MEMORY_DISK = Path("/dev/shm")
ROOM_BYTES = 8 << 30
"""The whole suite has at most 3 GB of files at a time."""


def pytest_configure(config: pytest.Config) -> None:
    """Forget the settings of whoever runs the tests, before any module reads one at import."""
    for name in [name for name in os.environ if name.startswith("FRAZIL_")]:
        del os.environ[name]
    # Each process that the tests start would compile the product anew: 267 modules of it take 0.9 s of the processor
    # instead of 0.4. To collect the tests takes a worker 21 s instead of 11.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell lets what it runs in the background ignore Ctrl-C, and so would the programs that tests end by it.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TMPDIR" not in os.environ and _has_room(MEMORY_DISK):
        # Everything is synced as in earnest, and nothing here has to survive the machine: a busy disk took half of the
        # time of many tests. What a power cut leaves is tested on a disk of its own: tests/bus/test_power_cut.py.
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY_DISK)

    if settings.get_current_profile_name() == "fixed":
        # Constants of the modules that are loaded are among the examples; which ones are, is chance: the order of the
        # files, and what ran before. tests/test_repeatable.py notices if Hypothesis takes them in another way.
        providers._get_local_constants = lambda: providers._local_constants


def _seed(config: pytest.Config) -> int:
    """0, or what `make soak` chose."""
    return int(config.getoption("--hypothesis-seed") or 0)


@pytest.fixture(scope="session")
def full_length() -> bool:
    """For tests of two lengths: whether this one is a run of `make soak`, which runs each test that asks for this."""
    return settings.get_current_profile_name() == "explore"


@pytest.fixture
def random_seed(request: pytest.FixtureRequest) -> int:
    """For random choices of a test: the same in every run, another one in each `make soak`, which runs it too."""
    seed = _seed(request.config)
    print(f"SEED={seed}")
    return seed


def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(_seed(item.config))


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` is looked at: what searches at random, and what has a greater length for `make soak`, is marked."""
    for item in items:
        takes_more = {"random_seed", "full_length"} & set(getattr(item, "fixturenames", ()))
        if takes_more or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.explore)
    mark_slow(items)
    longest_first(items)
