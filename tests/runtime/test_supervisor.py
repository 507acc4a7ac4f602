"""The supervisor with a real NATS and stand-ins for gateway and pipeline, in a process of its own to be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.runtime import processes
from frazil.runtime.data_dir import DataDir, write_json
from frazil.runtime.embedded_parts import answers
from frazil.runtime.supervisor import end_leftovers

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def eventually(holds: Callable[[], Any], *, seconds: float = 120.0) -> Any:
    """What `holds` returns once it is true; a bound against hanging, not a measurement."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)
    return found


class Running:
    def __init__(self, data: Path, *modes: str) -> None:
        self.data = DataDir(data)
        self.output = data.with_name(f"{data.name}.{time.monotonic_ns()}.out")
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "run_supervisor.py"), str(data), *modes],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def said(self) -> str:
        return self.output.read_text()

    def until(self, text: str) -> None:
        eventually(lambda: text in self.said() or self.process.poll() is not None)
        assert text in self.said(), self.said()

    def until_ready(self, name: str, *, restarts: int = 0) -> dict[str, Any]:
        def ready() -> Any:
            part = self.parts().get(name, {})
            return part if part.get("state") == "ready" and part.get("restarts") == restarts else None

        part: dict[str, Any] = eventually(ready)
        return part

    def parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = self.data.supervisor().get("parts", {})
        return parts

    def all_ready(self) -> dict[str, int]:
        return {name: self.until_ready(name)["pid"] for name in ("bus", "gateway", "pipeline")}

    def stops(self) -> list[str]:
        return (self.data.root / "stops").read_text().split()

    def run_id(self) -> str:
        return str(self.data.supervisor()["run_id"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def one(*modes: str) -> Running:
        started.append(Running(tmp_path / "data", *modes))
        return started[-1]

    yield one
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(10)
    end_leftovers(DataDir(tmp_path / "data"))


def test_all_come_up_and_stop_in_order(start: Callable[..., Running]) -> None:
    running = start()
    running.until("READY")
    pids = running.all_ready()
    facts = running.data.supervisor()
    assert answers(facts["bus_url"])
    assert facts["pid"] == running.process.pid
    run_id = running.run_id()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0
    assert running.stops() == ["gateway", "pipeline"]
    assert not any(processes.identity_of(pid) for pid in pids.values())
    assert processes.of_run(run_id) == []
    assert {part["state"] for part in running.parts().values()} == {"stopped"}
    assert "Server Exiting" in (running.data.logs / "bus.log").read_text()


def test_ctrl_c_is_not_seen_by_the_children(start: Callable[..., Running]) -> None:
    """Only the supervisor is in the terminal's process group."""
    running = start()
    pids = running.all_ready()
    assert all(os.getpgid(pid) == pid for pid in pids.values())


@pytest.mark.parametrize("name", ["bus", "gateway", "pipeline"])
def test_a_killed_part_is_started_again(start: Callable[..., Running], name: str) -> None:
    running = start()
    pids = running.all_ready()
    url = running.data.supervisor()["bus_url"]
    os.kill(pids[name], signal.SIGKILL)
    after = running.until_ready(name, restarts=1)
    assert after["pid"] != pids[name]
    assert f"{name} ended (killed by SIGKILL), starts again in 0.2 s" in running.said()
    assert running.data.supervisor()["bus_url"] == url
    assert answers(url)
    others = {other: pid for other, pid in pids.items() if other != name}
    assert {other: running.parts()[other]["pid"] for other in others} == others


def test_what_a_killed_part_leaves_is_ended(start: Callable[..., Running]) -> None:
    running = start("", "family")
    pids = running.all_ready()
    grandchild = processes.identity_of(int((running.data.root / "pipeline.child").read_text()))
    assert grandchild is not None
    os.kill(pids["pipeline"], signal.SIGKILL)
    running.until_ready("pipeline", restarts=1)
    assert not processes.is_alive(grandchild)


def test_a_part_that_keeps_dying_is_tried_ever_more_slowly(start: Callable[..., Running]) -> None:
    running = start("", "dies")
    for seconds in ("0.2", "0.4", "0.8"):
        running.until(f"pipeline ended (exit code 7), starts again in {seconds} s")
    assert "the last word" in running.said()
    assert "READY" in running.said(), "events are accepted without a pipeline"


def test_children_die_with_a_killed_supervisor(start: Callable[..., Running]) -> None:
    running = start()
    pids = running.all_ready()
    running.process.kill()
    running.process.wait(10)
    eventually(lambda: not any(processes.identity_of(pid) for pid in pids.values()))


def test_the_next_start_ends_what_an_earlier_one_left(start: Callable[..., Running]) -> None:
    running = start("", "family")
    running.all_ready()
    running.process.kill()
    running.process.wait(10)
    grandchild = processes.identity_of(int((running.data.root / "pipeline.child").read_text()))
    assert grandchild is not None, "in a session of its own, it outlives the kill"
    again = start()
    again.until("ended 1")
    assert not processes.is_alive(grandchild)
    again.all_ready()


def test_a_process_number_used_again_is_left_alone(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.prepare()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as innocent:
        known = processes.identity_of(innocent.pid)
        assert known is not None
        parts = {"gateway": {"pid": known.pid, "pid_started": known.started - 1}}
        write_json(data.supervisor_file, {"run_id": "of-nobody", "parts": parts})
        assert end_leftovers(data) == 0
        assert processes.is_alive(known)
        parts["gateway"]["pid_started"] = known.started
        write_json(data.supervisor_file, {"run_id": "of-nobody", "parts": parts})
        assert end_leftovers(data) == 1
        innocent.wait(10)


def test_leftovers_of_a_damaged_state_file_do_not_stop_the_start(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.prepare()
    data.supervisor_file.write_text('{"run_id": 5, "parts": ["x"')
    assert end_leftovers(data) == 0
    data.supervisor_file.write_text(json.dumps({"run_id": 5, "parts": ["x"]}))
    assert end_leftovers(data) == 0


def test_a_part_that_does_not_finish_is_killed(start: Callable[..., Running]) -> None:
    running = start("", "stubborn")
    running.all_ready()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 1
    assert "pipeline did not finish in 1 s" in running.said()
    assert running.stops() == ["gateway", "pipeline"]


def test_a_part_that_is_still_warming_is_not_waited_for(start: Callable[..., Running]) -> None:
    running = start("", "warming")
    running.until("READY")
    eventually((running.data.root / "pipeline.warming").exists)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0, "it had nothing to finish"


def test_a_second_ctrl_c_hurries(start: Callable[..., Running]) -> None:
    running = start("stubborn", "stubborn")
    pids = running.all_ready()
    running.process.send_signal(signal.SIGINT)
    running.until("stopping")
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(30) == 128 + signal.SIGINT
    assert not any(processes.identity_of(pid) for pid in pids.values())


def test_a_bus_that_cannot_start_ends_the_start_with_its_last_words(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    (tmp_path / "data" / "bus").mkdir(parents=True, mode=0o700)
    (tmp_path / "data" / "bus" / "jetstream").write_text("not a folder")
    running = start()
    assert running.process.wait(30) == 3
    assert "bus_failed" in running.said()
    assert "storage directory" in running.said()
    assert processes.of_run(running.run_id()) == []


def test_a_gateway_that_cannot_start_ends_the_start(start: Callable[..., Running]) -> None:
    running = start("dies")
    assert running.process.wait(30) == 3
    assert "gateway_failed" in running.said()
    assert "the last word" in running.said()


def test_a_child_of_a_dead_supervisor_ends_itself() -> None:
    """Where the kernel does not see to it, the child does."""
    code = (
        "import os, sys, time\nfrom frazil.runtime.processes import watch_supervisor\n"
        "watch_supervisor({'FRAZIL_SUPERVISOR_PID': sys.argv[1]}, every_seconds=0.05)\ntime.sleep(120)"
    )
    alone = subprocess.Popen([sys.executable, "-c", code, "1"], cwd=ROOT)
    assert alone.wait(30) == 1
