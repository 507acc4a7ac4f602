"""Quack: another DuckDB reads an artifact with the token, and gets at nothing else with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

from frazil.errors import NotFound
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.quack import QuackOfTable
from frazil.serving.quack.server import QuackServer
from frazil.serving.sql.worker import sandbox
from frazil.storage import Warehouse
from tests.ports import free_port
from tests.serving.artifacts.killing import Place
from tests.serving.artifacts.samples import PARTS, source

pytestmark = pytest.mark.skipif(sandbox.landlock_abi() < 4, reason="this Landlock does not know sockets")
TOKEN = "frq_a-token-of-the-tests"


class Reader:
    """A DuckDB of somebody else."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = duckdb.connect()
        for name in ("httpfs", "quack"):
            spec = find_spec(f"duckdb_extension_{name}")
            assert spec is not None and spec.origin is not None
            (found,) = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
            self.connection.load_extension(str(found))

    def ask(self, sql: str, token: str = TOKEN) -> list[tuple[object, ...]]:
        """What the server says to this very statement."""
        words = {"uri": f"quack:localhost:{self.port}", "sql": sql, "token": token}
        return self.connection.execute("FROM quack_query($uri, $sql, token := $token)", words).fetchall()

    def refusal(self, sql: str) -> str:
        with pytest.raises(duckdb.Error) as caught:
            self.ask(sql)
        return str(caught.value)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quack") / "rows.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE rows AS SELECT range AS _document, 'n' || range AS name FROM range(1000)")
    return path


@pytest.fixture(scope="module")
def reader(file: Path) -> Iterator[Reader]:
    port = free_port()
    with QuackServer(file, port=port, token=TOKEN, memory_bytes=256 << 20):
        yield Reader(port)


def test_it_is_read_like_a_database_of_ones_own(reader: Reader) -> None:
    reader.connection.execute(f"ATTACH 'quack:localhost:{reader.port}' AS far (TOKEN '{TOKEN}')")
    assert reader.connection.execute("SELECT count(*), max(name) FROM far.rows").fetchall() == [(1000, "n999")]


@pytest.mark.parametrize("token", ["", "frq_", TOKEN[:-1], TOKEN + "x", TOKEN.upper()])
def test_another_token_opens_nothing(reader: Reader, token: str) -> None:
    with pytest.raises(duckdb.Error, match=r"(?i)authenticat|token"):
        reader.ask("SELECT 1", token)


@pytest.mark.parametrize(
    "attack",
    [
        "CREATE TABLE mine AS SELECT 1",
        "DROP TABLE rows",
        "SELECT 1; DROP TABLE rows",
        "UPDATE rows SET name = ''",
        "ATTACH ':memory:' AS m",
        "ATTACH '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/proc/self/environ')",
        "SELECT * FROM glob('/*')",
        "COPY rows TO '/tmp/stolen.csv'",
        "EXPORT DATABASE '/tmp/stolen'",
        "INSTALL httpfs",
        "LOAD '/tmp/evil.duckdb_extension'",
        "SET threads = 64",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "SELECT * FROM read_text('http://127.0.0.1:{other}/x')",
        "CALL quack_serve('quack:127.0.0.1:{other}', token := 'another')",
        "FROM quack_query('quack:127.0.0.1:{other}', 'SELECT 1', token := 'another')",
    ],
)
def test_the_token_gives_the_rows_and_nothing_else(reader: Reader, attack: str) -> None:
    said = reader.refusal(attack.format(other=free_port()))
    assert "root:" not in said and TOKEN not in said
    assert reader.ask("SELECT count(*) FROM rows") == [(1000,)], "and it serves on"


def test_what_takes_too_much_memory_is_refused_and_others_are_served(reader: Reader) -> None:
    assert "memory" in reader.refusal("SELECT length(string_agg(repeat('x', 1000000), '')) FROM range(2000)").lower()
    assert reader.ask("SELECT count(*) FROM rows") == [(1000,)]


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "rows.duckdb").write_bytes(b"not a database" * 500)
    with pytest.raises(Exception, match="cannot be served"):
        QuackServer(tmp_path / "rows.duckdb", port=free_port(), token=TOKEN)


def test_it_goes_with_its_parent(file: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from frazil.serving.quack.server import QuackServer\n"
        f"server = QuackServer(Path({str(file)!r}), port={free_port()}, token={TOKEN!r})\n"
        "print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait(30)
    parent.stdout.close()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and Path(f"/proc/{pid}/cmdline").read_bytes():
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}/cmdline").read_bytes()


def baked(where: Place, folder: Path, rows: int) -> str:
    """An artifact of so many rows, published and current."""
    manifest = write_artifact(source(rows, watermark=rows << 20), folder, PARTS)
    where.shelf().publish(folder)
    where.shelf().promote(manifest.generation)
    return manifest.generation


def test_what_becomes_current_is_served_next(tmp_path: Path) -> None:
    place = Place(tmp_path / "catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    shelf = place.shelf()
    port = free_port()
    served = QuackOfTable(shelf, place.copies(tmp_path / "cache"), port=port, token=TOKEN)
    try:
        with pytest.raises(NotFound):
            served.turn()
        first = baked(place, tmp_path / "first", 20)
        assert served.turn() and not served.turn()
        assert Reader(port).ask("SELECT count(*) FROM rows") == [(20,)]
        assert [lease.generations for lease in shelf.leases()] == [(first,)]
        second = baked(place, tmp_path / "second", 30)
        assert served.turn() and served.generation == second
        assert Reader(port).ask("SELECT count(*) FROM rows") == [(30,)]
        assert [lease.generations for lease in shelf.leases()] == [(second,)]
        assert served._serving is not None
        os.kill(served._serving.server.pid, signal.SIGKILL)
        served._serving.server._process.wait(30)
        assert served.turn(), "a worker that died is started again"
        assert Reader(port).ask("SELECT count(*) FROM chunks") != [(0,)]
    finally:
        served.close()
    assert shelf.leases() == []
