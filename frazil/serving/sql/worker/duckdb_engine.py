"""DuckDB engine of a worker: locked (the second wall), with views of the tables of one query (the fourth).

It is made in the fork server, once, by a process of one thread; a worker inherits it by fork and locks it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import InvalidInput
from frazil.events.declaration import quote_name
from frazil.serving.sql.errors import FilesUnreadable, OutOfMemory
from frazil.serving.sql.statement import judge as statement
from frazil.serving.sql.worker import formats
from frazil.serving.sql.worker.duckdb_types import delivered
from frazil.serving.sql.worker.engine_errors import translated
from frazil.serving.sql.worker.selection import DecodedSelection, attach, bits, numbered
from frazil.serving.sql.worker.views import RelationNames, RelationView, nothing, take_down, view

_EXTENSIONS = ("avro", "httpfs", "iceberg")
_BATCH_ROWS = 8192
_MOST_SHOWN = 64 << 20


@dataclass(frozen=True)
class Store:
    """Where table files are, in the engine's words. The key is known to the fork server and its children only."""

    directories: Sequence[str]
    secret: dict[str, Any] | None = None


class Engine:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._views: tuple[str, ...] = ()
        self._unmake = ""
        self._reading = False
        self._numbers = 0
        self.connection = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "allow_persistent_secrets": False,
            },
        )
        for name in _EXTENSIONS:
            self.connection.load_extension(str(_extension(name)))
        self._keep_key()

    def _keep_key(self) -> None:
        secret = self._store.secret
        if secret is not None:
            given = ", ".join(f"{name} ${name}" for name in secret)
            self.connection.execute(f"CREATE SECRET (TYPE s3, {given})", secret)

    def lock(self, *, threads: int, memory_bytes: int) -> None:
        """Lock the settings, in the one order that the engine allows. Afterwards no statement can change a setting."""
        token = secrets.token_hex(16)
        self._names = RelationNames(schema=f"s{token}", parameter=f"p{token}")
        execute = self.connection.execute
        execute(f"CREATE SCHEMA {self._names.schema}")
        execute("SET temp_directory = ''")
        execute(f"SET memory_limit = '{memory_bytes // 1024}KiB'")
        execute(f"SET threads = {threads}")
        execute("SET TimeZone = 'UTC'")
        execute("SET python_enable_replacements = false")
        # Files of a table never change under their name, so that nothing read from them grows old.
        execute("SET parquet_metadata_cache = true")
        execute("SET validate_external_file_cache = 'NO_VALIDATION'")
        execute("SET allowed_directories = $1", [list(self._store.directories)])
        execute("SET enable_external_access = false")
        execute("SET lock_configuration = true")

    def warm(self) -> None:
        """Go through every format once: what is imported late would not be found behind the walls."""
        for format in formats.FORMATS:
            reader, types = self._reader("SELECT $1 AS n, $2 AS t, [1.5] AS l, now() AS at, 1::HUGEINT AS h", [1, "a"])
            formats.encode(reader, types, format, max_rows=10, max_bytes=10_000)
        self.judge("SELECT count(*) FROM rows WHERE name = 'a'")
        statement.judge_filter(self.connection, "name = 'a'")

    def judge(self, sql: str) -> statement.Statement:
        return statement.judge_statement(self.connection, sql)

    def check_filter(self, expression: str, columns: Sequence[tuple[str, str]]) -> None:
        """Raise unless this is one boolean expression over these columns and nothing else."""
        statement.judge_filter(self.connection, expression)
        try:
            described = self.connection.execute(
                f"DESCRIBE SELECT (\n{expression}\n) FROM ({nothing(columns)})"  # noqa: S608
            ).fetchall()
        except duckdb.Error as error:
            raise translated(error, restricted=False, hidden=self._hidden()) from error
        if len(described) != 1 or described[0][1] != "BOOLEAN":
            raise InvalidInput("a row filter must be true or false", hint="write a condition such as team = 'blue'")

    def take_tail(self, key: str, *, fresh: bool, keep_from: int | None, rows: pa.Table | None) -> None:
        """Add rows to the tail kept under a key; `fresh` starts it anew, `keep_from` lets the rows below go."""
        self.settle()
        table = self._tail_table(key)
        if rows is not None:
            if fresh:
                self._newest.pop(key, None)
            if rows.num_rows:
                self._newest[key] = max(int(pc.max(rows["_seq"]).as_py()), self._newest.get(key, -1))
            arrived = self.connection.from_arrow(rows)
            if fresh:
                self.connection.execute(f"DROP TABLE IF EXISTS {table}")
                arrived.create(table)
            else:
                arrived.insert_into(table)
        if keep_from is not None:
            # A deleted row keeps its memory; a table made anew does not.
            self.connection.execute(
                f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {table} WHERE _seq >= {keep_from}"  # noqa: S608
            )

    def forget_tail(self, key: str) -> None:
        self.settle()
        table = self._tail_table(key)
        self.connection.execute(f"DROP TABLE IF EXISTS {table}")
        del self._tails[key]
        self._newest.pop(key, None)

    def _tail_table(self, key: str) -> str:
        if key not in self._tails:
            self._numbers += 1
            self._tails[key] = self._numbers
        return self._names.tail(self._tails[key])

    def run(
        self,
        sql: str,
        parameters: list[Any] | dict[str, Any] | None,
        relations: Sequence[RelationView],
        *,
        format: str,
        max_rows: int,
        max_bytes: int,
    ) -> formats.Encoded:
        """Run one judged statement, which sees these relations and no others, and can change nothing."""
        restricted = any(relation.restricted for relation in relations)
        self._show(relations)
        self.connection.execute("BEGIN TRANSACTION READ ONLY")
        self._reading = True
        try:
            reader, types = self._reader(sql, parameters)
            return formats.encode(reader, types, format, max_rows=max_rows, max_bytes=max_bytes)
        except (
            duckdb.Error,
            pa.ArrowException,
            OSError,
            MemoryError,
            RecursionError,
            RuntimeError,
            ValueError,
        ) as error:
            raise translated(error, restricted=restricted, hidden=self._hidden()) from error

    def select(self, selection: DecodedSelection, size: int, *, file: str | None, rows: pa.Table | None) -> bytes:
        """Which rows of an artifact's file, or of these, the selection chooses: a bitmap of `size`."""
        for condition in selection.conditions:
            self.check_filter(condition, selection.visible)
        with self._rows(selection, file, rows) as (source, present):
            return bits(self._selected(selection, selection.numbers(source, present, self._names.parameter)), size)

    def show(self, selection: DecodedSelection, rows: pa.Table) -> formats.Encoded:
        """These rows in their order, as the caller may see them; those that the grant hides are left out."""
        number = self._names.parameter
        with self._rows(selection, None, rows) as (source, present):
            listed = ", ".join(quote_name(name) for name, _ in selection.columns)
            seen = selection.of(source, present, number)
            found = self._selected(selection, f"SELECT {number}, {listed} FROM ({seen}) ORDER BY {number}")  # noqa: S608
            types = ["BIGINT", *(kind for _, kind in selection.visible)]
            reader = found.to_reader()
            return formats.encode(reader, types, "json", max_rows=rows.num_rows, max_bytes=_MOST_SHOWN)

    def _selected(self, selection: DecodedSelection, sql: str) -> pa.Table:
        self.connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            return self.connection.execute(sql).to_arrow_table()
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError, RuntimeError, ValueError) as error:
            raise translated(error, restricted=selection.restricts, hidden=self._hidden()) from error
        finally:
            self.connection.execute("ROLLBACK")

    @contextmanager
    def _rows(
        self, selection: DecodedSelection, file: str | None, rows: pa.Table | None
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """What the rows are selected from, and the columns that it has."""
        self.settle()
        if file is not None:
            alias = f"a{self._names.schema}"
            try:
                yield f"{alias}.main.rows", attach(self.connection, file, alias)
            except duckdb.Error as error:
                raise FilesUnreadable("the artifact's rows cannot be read", hint="try again in a moment") from error
            finally:
                self.connection.execute(f"DETACH DATABASE IF EXISTS {alias}")
            return
        assert rows is not None
        table = f"{self._names.schema}.given"
        self.connection.from_arrow(numbered(rows)).create(table)
        try:
            yield table, rows.schema.names
        finally:
            self.connection.execute(f"DROP TABLE {table}")

    def settle(self) -> None:
        """End what the last statement began; it waits for this until its answer is on the way."""
        if self._reading:
            self._reading = False
            self.connection.execute("ROLLBACK")

    def _show(self, relations: Sequence[RelationView]) -> None:
        """Let there be the views of these relations, and none else.

        They are left standing for the next statement, which takes them down unless it is to see the very same: the same
        tables at the same snapshots through the same filters and masks. Making them anew takes 1.5 ms.
        """
        self.settle()
        wanted = tuple(self._view(relation, index) for index, relation in enumerate(relations))
        if wanted == self._views and not any(relation.lines for relation in relations):
            return
        unmake, self._views, self._unmake = self._unmake, (), take_down(relations, self._names)
        try:
            self.connection.execute("BEGIN;" + unmake + "".join(wanted) + "COMMIT")
        except duckdb.Error as error:
            # Only memory can fail here. What stands now nobody knows, but this error is also the end of the worker.
            raise OutOfMemory("the query needs more memory than a worker has", hint="try again") from error
        self._views = wanted

    def _view(self, relation: RelationView, index: int) -> str:
        if relation.tail is None:
            return view(relation, index, self._names, None)
        # The newest row is below the end, unless another query was cut later: then the view needs the end.
        ends = self._newest.get(relation.tail, -1) >= relation.end
        return view(relation, index, self._names, self._tail_table(relation.tail), ends=ends)

    def _reader(
        self, sql: str, parameters: list[Any] | dict[str, Any] | None
    ) -> tuple[pa.RecordBatchReader, list[str]]:
        running = self.connection.execute(sql, parameters or None)
        names = [str(column[0]) for column in running.description or ()]
        types = [str(column[1]) for column in running.description or ()]
        casts = [delivered(kind) for kind in types]
        if any(casts):
            # Begun a second time rather than described first: few results need it, and describing binds every scan.
            running = self.connection.execute(_with_casts(sql, names, casts), parameters or None)
        return running.to_arrow_reader(_BATCH_ROWS), types

    def _hidden(self) -> tuple[str, ...]:
        return (self._names.schema, self._names.parameter)


def _with_casts(sql: str, names: Sequence[str], casts: Sequence[str | None]) -> str:
    """The statement with the columns that Arrow cannot carry cast to what it can; by position."""
    inner = ", ".join(f"c{index}" for index in range(len(names)))
    outer = ", ".join(
        (f"CAST(c{index} AS {cast})" if cast else f"c{index}") + f" AS {quote_name(name)}"
        for index, (name, cast) in enumerate(zip(names, casts, strict=True))
    )
    return f"SELECT {outer} FROM (\n{sql.rstrip().rstrip(';')}\n) AS answer({inner})"  # noqa: S608


def _extension(name: str) -> Path:
    module = __import__(f"duckdb_extension_{name}")
    (found,) = Path(str(module.__file__)).parent.rglob(f"{name}.duckdb_extension")
    return found
