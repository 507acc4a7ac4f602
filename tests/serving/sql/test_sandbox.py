"""Each part of the first wall alone: another process puts up that part only and then tries what it should not."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import fcntl
import os
import platform
import resource
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import pytest
from pyspark import cloudpickle

from frazil.child_process import die_with_parent
from frazil.serving.sql.worker import sandbox, seccomp
from tests.forks import context

needs_landlock = pytest.mark.skipif(sandbox.landlock_abi() == 0, reason="this kernel has no Landlock")


def behind(wall: Callable[[], object], act: Callable[[], object]) -> str:
    """What `act` gives or raises in a process behind the wall; "signal N" when the process was ended."""
    inlet, outlet = context.Pipe(duplex=False)
    task: bytes = cloudpickle.dumps((wall, act))  # type: ignore[no-untyped-call]
    process = context.Process(target=_behind, args=(task, outlet))
    process.start()
    outlet.close()
    answer = ""
    with inlet, contextlib.suppress(EOFError):
        if inlet.poll(60):
            answer = inlet.recv_bytes().decode()
    process.join(60)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("it hangs behind the wall")
    return f"signal {-process.exitcode}" if process.exitcode < 0 else answer


def _behind(task: bytes, outlet: Connection) -> None:
    # A process that aborts here was meant to.
    faulthandler.disable()
    wall, act = cloudpickle.loads(task)
    wall()
    outlet.send_bytes(_tried(act).encode())
    # Behind some of the walls nothing can be tidied up any more.
    os._exit(0)


def _tried(act: Callable[[], object]) -> str:
    try:
        return f"did: {act()!r}"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def confined(*readable: Path, port: int | None = None) -> Callable[[], object]:
    return lambda: sandbox.confine(sandbox.SandboxRules([str(path) for path in readable], port))


def sql_behind(wall: Callable[[], object], text: str) -> str:
    """DuckDB without any wall of its own, started before the wall (it looks at the machine) and without threads yet."""
    engines: list[duckdb.DuckDBPyConnection] = []

    def start() -> None:
        engines.append(duckdb.connect(config={"threads": 1}))
        wall()

    return behind(start, lambda: engines[0].execute(text).fetchall())


@needs_landlock
def test_landlock_lets_the_warehouse_be_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("hello")
    (tmp_path / "out").write_text("no")
    wall = confined(tmp_path / "in")

    assert behind(wall, (tmp_path / "in" / "file").read_text) == "did: 'hello'"
    assert behind(wall, lambda: os.listdir(tmp_path / "in")) == "did: ['file']"
    assert behind(wall, (tmp_path / "out").read_text) == "EACCES"
    assert behind(wall, Path("/etc/passwd").read_text) == "EACCES"
    assert behind(wall, lambda: os.listdir("/")) == "EACCES"
    assert behind(wall, Path("/proc/self/environ").read_text) == "EACCES"
    assert behind(wall, lambda: (tmp_path / "in" / "link").symlink_to("/etc/passwd")) == "EACCES"


@needs_landlock
@pytest.mark.parametrize("act", ["write", "append", "truncate", "create", "unlink", "rename", "mkdir"])
def test_landlock_keeps_the_warehouse_as_it_is(tmp_path: Path, act: str) -> None:
    file = tmp_path / "file"
    file.write_text("hello")
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: file.write_text("bye"),
        "append": lambda: file.open("a"),
        "truncate": lambda: os.truncate(file, 0),
        "create": lambda: (tmp_path / "new").touch(),
        "unlink": file.unlink,
        "rename": lambda: file.rename(tmp_path / "other"),
        "mkdir": lambda: (tmp_path / "folder").mkdir(),
    }

    assert behind(confined(tmp_path), acts[act]) == "EACCES"
    assert os.listdir(tmp_path) == ["file"]
    assert file.read_text() == "hello"


@needs_landlock
def test_landlock_stops_an_engine_that_has_no_wall_of_its_own(tmp_path: Path) -> None:
    duckdb.connect().execute(f"COPY (SELECT 42 AS n) TO '{tmp_path}/t.parquet'")
    wall = confined(tmp_path)

    assert sql_behind(wall, f"FROM '{tmp_path}/t.parquet'") == "did: [(42,)]"
    assert sql_behind(wall, "SELECT content FROM read_text('/etc/passwd')").startswith("IOException")
    assert sql_behind(wall, f"COPY (SELECT 1) TO '{tmp_path}/new.csv'").startswith("IOException")
    assert sql_behind(wall, f"ATTACH '{tmp_path}/new.db'").startswith("IOException")
    assert os.listdir(tmp_path) == ["t.parquet"]


@needs_landlock
@pytest.mark.skipif(sandbox.landlock_abi() < 4, reason="this Landlock does not know sockets")
def test_landlock_connects_to_the_store_only(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as store, socket.create_server(("127.0.0.1", 0)) as other:

        def connect(server: socket.socket) -> Callable[[], object]:
            address = server.getsockname()
            return lambda: socket.socket().connect(address)

        wall = confined(tmp_path, port=store.getsockname()[1])
        assert behind(wall, connect(store)) == "did: None"
        assert behind(wall, connect(other)) == "EACCES"
        assert behind(wall, lambda: socket.create_server(("127.0.0.1", 0))) == "EACCES"


@needs_landlock
@pytest.mark.skipif(sandbox.landlock_abi() < 6, reason="this Landlock does not know signals")
def test_landlock_keeps_signals_inside(tmp_path: Path) -> None:
    parent = os.getpid()
    assert behind(confined(tmp_path), lambda: os.kill(parent, 0)) == "EPERM"


def filtered(*, sockets: bool = False, datagrams: bool = False) -> Callable[[], object]:
    return lambda: seccomp.install(sockets=sockets, datagrams=datagrams)


def call(x86: int, arm: int, *arguments: int) -> Callable[[], object]:
    def act() -> object:
        libc = ctypes.CDLL(None, use_errno=True)
        answer = libc.syscall(x86 if platform.machine() == "x86_64" else arm, *arguments)
        if answer < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return answer

    return act


def test_the_filter_refuses_new_processes_and_programs() -> None:
    assert behind(filtered(), os.fork) == "EPERM"
    assert behind(filtered(), lambda: os.execv("/bin/true", ["true"])) == "EPERM"  # noqa: S606
    assert behind(filtered(), lambda: os.posix_spawn("/bin/true", ["true"], {})) == "EPERM"
    assert behind(filtered(), call(435, 435, 0, 0)) == "ENOSYS"


@pytest.mark.parametrize(
    ("name", "x86", "arm"),
    [
        ("ptrace", 101, 117),
        ("process_vm_readv", 310, 270),
        ("mount", 165, 40),
        ("unshare", 272, 97),
        ("setns", 308, 268),
        ("keyctl", 250, 219),
        ("bpf", 321, 280),
        ("perf_event_open", 298, 241),
        ("io_uring_setup", 425, 425),
        ("pidfd_getfd", 438, 438),
        ("memfd_create", 319, 279),
        ("open_by_handle_at", 304, 265),
    ],
)
def test_the_filter_refuses_what_no_query_needs(name: str, x86: int, arm: int) -> None:
    assert behind(filtered(), call(x86, arm, 0, 0, 0, 0, 0)) == "EPERM"


def test_the_filter_refuses_signals_to_others_but_a_process_may_abort() -> None:
    parent = os.getpid()
    assert behind(filtered(), lambda: os.kill(parent, 0)) == "EPERM"
    assert behind(filtered(), call(234, 131, parent, parent, 0)) == "EPERM"
    assert behind(filtered(), os.abort) == f"signal {int(signal.SIGABRT)}"


def test_the_filter_lets_threads_start() -> None:
    query = "SET threads = 4; SELECT sum(range) FROM range(3_000_000)"
    assert sql_behind(filtered(), query) == "did: [(4499998500000,)]"


def test_the_filter_knows_sockets() -> None:
    tcp = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).type  # noqa: E731
    udp = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).type  # noqa: E731
    unix = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).type  # noqa: E731
    raw = lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).type  # noqa: E731

    assert [behind(filtered(), act) for act in (tcp, udp, unix, raw)] == ["EPERM"] * 4
    store = filtered(sockets=True)
    assert behind(store, tcp).startswith("did")
    assert [behind(store, act) for act in (udp, unix, raw)] == ["EPERM"] * 3
    named = filtered(sockets=True, datagrams=True)
    assert behind(named, udp).startswith("did")
    assert [behind(named, act) for act in (unix, raw)] == ["EPERM"] * 2


def memory(more: int) -> Callable[[], object]:
    return lambda: sandbox.MemoryLimit().put_up(more)


def test_memory_ends_at_the_limit() -> None:
    assert behind(memory(256 << 20), lambda: len(bytearray(4 << 30))).startswith("MemoryError")
    assert behind(memory(256 << 20), lambda: len(bytearray(64 << 20))) == f"did: {64 << 20}"
    # Under a memory limit of its own that would allow it.
    bomb = "SET memory_limit = '8GB'; SELECT length(repeat('x', 4_000_000_000))"
    assert "OutOfMemory" in sql_behind(memory(512 << 20), bomb)


def test_the_limit_of_memory_cannot_be_raised_by_root_without_capabilities() -> None:
    def wall() -> None:
        memory(256 << 20)()
        sandbox.drop_capabilities()

    raised = behind(wall, lambda: resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2))
    assert raised.startswith(("ValueError", "EPERM"))


def test_files_cannot_grow(tmp_path: Path) -> None:
    assert behind(sandbox.limit_files, lambda: (tmp_path / "f").write_text("x")) == "EFBIG"
    assert behind(sandbox.limit_files, lambda: [os.open("/", os.O_RDONLY) for _ in range(1000)]) == "EMFILE"


def test_processor_time_ends() -> None:
    def spin() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pass

    def wall() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        # One second more, without the slack of limit_cpu.
        sandbox.limit_cpu(-1.0)
        assert resource.getrlimit(resource.RLIMIT_CPU)[0] <= used.ru_utime + used.ru_stime + 2

    assert behind(wall, spin) == f"signal {int(signal.SIGXCPU)}"


def test_a_process_goes_with_its_parent(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()

    def parent_that_dies() -> None:
        me = os.getpid()
        if os.fork() == 0:
            die_with_parent(me)
            with held.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                held.write_text("held")
                time.sleep(60)
            os._exit(0)
        while not held.read_text():
            time.sleep(0.01)

    assert behind(lambda: None, parent_that_dies) == "did: None"
    assert held.read_text() == "held"
    deadline = time.monotonic() + 60
    # The lock is free when the process that has it is gone.
    with held.open() as file:
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.01)
    pytest.fail("the grandchild outlived its parent")


def test_all_parts_stand_together(tmp_path: Path) -> None:
    standing = behind(lambda: None, lambda: sandbox.enter_sandbox(sandbox.SandboxRules([str(tmp_path)])))
    assert standing.count("'up") == (4 if sandbox.landlock_abi() else 3)
