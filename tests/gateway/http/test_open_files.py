"""The limit on open files is raised as far as it is needed and allowed, and connections stay below it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from frazil.gateway.http import open_files

RAISE = """
import resource, runpy, sys
soft, hard, wanted = map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allowed = runpy.run_path(sys.argv[1])["allow_open_files"](wanted)
print(allowed, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "limit"), [(256, 1024, 900, 900), (256, 512, 2512, 512), (1024, 1024, 100, 1024)]
)
def test_the_limit_is_raised(soft: int, hard: int, wanted: int, limit: int) -> None:
    command = [sys.executable, "-c", RAISE, open_files.__file__, str(soft), str(hard), str(wanted)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert [int(word) for word in said] == [limit, limit, hard]


@pytest.mark.parametrize(
    ("files", "wanted", "connections"), [(20_000, 2000, 2000), (1024, 2000, 512), (256, 2000, 128), (600, 50, 50)]
)
def test_connections_leave_room_for_files(files: int, wanted: int, connections: int) -> None:
    assert open_files.connections_within(files, wanted) == connections
