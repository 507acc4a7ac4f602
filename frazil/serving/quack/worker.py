"""Quack worker: a sandboxed DuckDB on one read-only file that answers the remote protocol.

Started as a process of its own with one line of JSON on its standard input; it ends when that is closed.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.child_process import die_with_parent, give_way
from frazil.serving.sql.worker import sandbox

if TYPE_CHECKING:
    import duckdb

# The protocol's own session keys are made by the cryptography that httpfs brings.
_EXTENSIONS = ("httpfs", "quack")
_NICE = 10
# Address space that is reserved and not used: stacks and arenas of the protocol's threads, beyond the engine's memory.
_ROOM_BYTES = 4 << 30


def opened(file: str) -> duckdb.DuckDBPyConnection:
    """The engine, still of one thread: walls hold for the threads that come after them."""
    # DuckDB's binding imports these when it first needs them: behind the walls no file of Python can be read.
    import datetime  # noqa: F401
    import decimal  # noqa: F401
    import uuid  # noqa: F401

    import duckdb

    connection = duckdb.connect(
        file,
        read_only=True,
        config={
            "threads": 1,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_persistent_secrets": False,
            "allow_unsigned_extensions": False,
        },
    )
    for name in _EXTENSIONS:
        spec = find_spec(f"duckdb_extension_{name}")
        assert spec is not None and spec.origin is not None, f"the extension {name} comes with frazil"
        (found,) = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
        connection.load_extension(str(found))
    return connection


def serve(order: dict[str, Any], connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Serve for as long as the connection is open; which walls stand. Without all of them nothing is served."""
    memory = sandbox.MemoryLimit()
    standing = sandbox.enter_sandbox(sandbox.SandboxRules(readable=[order["file"]], listen=order["port"]))
    execute = connection.execute
    execute("SET temp_directory = ''")
    execute(f"SET memory_limit = '{order['memory_bytes'] // 1024}KiB'")
    execute(f"SET threads = {int(order['threads'])}")
    execute("SET TimeZone = 'UTC'")
    execute("SET python_enable_replacements = false")
    execute("SET enable_external_access = false")
    execute("SET lock_configuration = true")
    memory.put_up(order["memory_bytes"] + _ROOM_BYTES)
    if all(stands.startswith("up") for stands in standing.values()):
        address = f"quack:127.0.0.1:{int(order['port'])}"
        execute("CALL quack_serve($1, token := $2)", [address, order["token"]]).fetchall()
    return standing


def main() -> None:
    die_with_parent(os.getppid())
    sandbox.hide_memory()
    give_way(_NICE)
    order = json.loads(sys.stdin.readline())
    try:
        connection = opened(order["file"])
        report: dict[str, Any] = {"walls": serve(order, connection)}
    except Exception as error:  # whatever it is, the parent reports it
        report = {"failed": f"{type(error).__name__}: {error}"[:500]}
    print(json.dumps(report), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
