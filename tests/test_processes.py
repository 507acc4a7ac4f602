"""What tests of crashes lean on: a stopped process stands still, and a port belongs to one process of tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.processes import go_on, stop

COUNTS = """
import mmap, sys, threading
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 8 * 8)
def count(at):
    number = 0
    while True:
        number += 1
        shared[at : at + 8] = number.to_bytes(8, "big")
for at in range(0, 64, 8):
    threading.Thread(target=count, args=(at,)).start()
print("counting", flush=True)
"""
TELLS = "from tests.ports import free_port; print([free_port() for _ in range(20)], flush=True); input()"


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    shared = tmp_path / "counts"
    shared.write_bytes(bytes(64))
    with subprocess.Popen([sys.executable, "-c", COUNTS, str(shared)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"counting\n"
        yield process, shared
        process.send_signal(signal.SIGKILL)


def test_a_process_that_was_stopped_stands_still(counting: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, shared = counting
    seen = set()
    for _ in range(50):
        stop(process.pid)
        at_once = shared.read_bytes()
        assert shared.read_bytes() == at_once
        seen.add(at_once)
        go_on(process.pid)
    assert len(seen) > 1, "and goes on afterwards"


def test_two_processes_of_tests_have_no_port_in_common() -> None:
    mine = {free_port() for _ in range(20)}
    told = []
    with (
        subprocess.Popen([sys.executable, "-c", TELLS], stdin=-1, stdout=-1, text=True) as one,
        subprocess.Popen([sys.executable, "-c", TELLS], stdin=-1, stdout=-1, text=True) as two,
    ):
        for process in (one, two):
            assert process.stdout is not None and process.stdin is not None
            told.append(set(map(int, process.stdout.readline().strip("[]\n").split(", "))))
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    assert [len(ports) for ports in (mine, *told)] == [20] * 3
    assert len(mine.union(*told)) == 60
    connections = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(mine.union(*told)) < connections, "no connection takes one of them"
