"""What `frazil up` refuses before it starts anything. How it runs is tested with the supervisor and in the flow."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.runtime.data_dir import DataDir, write_json
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*arguments: object, **more: object) -> None:
        raise AssertionError("a part was started")

    monkeypatch.setattr("frazil.runtime.processes.spawn", started)


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    directory = DataDir(tmp_path / "frazil-data")
    directory.prepare()
    return directory


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_second_up_names_the_first(run: Run, data: DataDir) -> None:
    lock = data.lock()
    write_json(data.supervisor_file, {"pid": 4711, "url": "http://127.0.0.1:1234"})
    ran = run("up")
    assert ran.code == 1
    assert "already running" in ran.err
    assert "process 4711, http://127.0.0.1:1234" in ran.err
    assert json.loads(run("up", "--json").out)["error"]["code"] == "already_running"
    lock.release()


def test_a_taken_port(run: Run, taken_port: int) -> None:
    ran = run("up", "--port", str(taken_port))
    assert ran.code == 1
    assert f"Error: port {taken_port} on 127.0.0.1 is taken" in ran.err
    assert "--port" in ran.err


def test_no_java(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = run("up")
    assert ran.code == 2
    assert "Error: there is no Java" in ran.err
    assert "openjdk-17" in ran.err


def test_a_nearly_full_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_MIN_FREE_BYTES", str(1 << 62))
    ran = run("up")
    assert ran.code == 2
    assert "are free" in ran.err


def test_a_directory_that_cannot_be_written_to(run: Run) -> None:
    Path("file").write_text("")
    ran = run("up", "--data", "file/data")
    assert ran.code == 2
    assert "cannot be written to" in ran.err


def test_a_damaged_catalog(run: Run, data: DataDir) -> None:
    (data.root / "catalog.db").write_bytes(b"garbage" * 1000)
    ran = run("up")
    assert ran.code == 2
    assert f"the catalog {data.root / 'catalog.db'} is damaged" in ran.err
    assert "backup" in ran.err


def test_a_damaged_token(run: Run, data: DataDir) -> None:
    data.token_file.write_text("oops")
    data.token_file.chmod(0o600)
    ran = run("up")
    assert ran.code == 2
    assert "is damaged" in ran.err


def test_a_typo_in_the_settings(run: Run) -> None:
    Path("frazil.toml").write_text("[server]\nprot = 1\n")
    ran = run("up")
    assert ran.code == 2
    assert "'server.prot' is not a setting" in ran.err
    assert "Try:   did you mean 'server.port'?" in ran.err


def test_a_remote_address(run: Run) -> None:
    ran = run("up", "--host", "0.0.0.0")  # noqa: S104
    assert ran.code == 2
    assert "allow_remote" in ran.err


def test_a_refused_start_leaves_the_directory_free(run: Run, data: DataDir, taken_port: int) -> None:
    assert run("up", "--port", str(taken_port)).code == 1
    assert not data.is_locked()
