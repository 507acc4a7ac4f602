"""Documents of the registry: small, in the catalog's database, shared by all processes of one installation.

Every change takes the next change number, in the order in which changes become visible. A reader
keeps the number of its last read, compares it with `version()`, which is cheap, and then lists what is newer.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Connection, Engine, LargeBinary, MetaData, String, Table, inspect, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from frazil.errors import Conflict, Unavailable
from frazil.registry.database import database_errors

MAX_KEY = 255
_TRIES = 50
_PAUSE_SECONDS = 0.01
_TABLE = Table(
    "frazil_registry",
    MetaData(),
    Column("catalog_name", String(255), primary_key=True),
    Column("document_key", String(MAX_KEY), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
# The row of this key counts the changes. A writer increases it first and holds its lock until the commit:
# otherwise a change of a lower number could become visible after one of a higher number, and be overlooked.
_COUNTER = ""
_RAISE = text(
    "UPDATE frazil_registry SET version = version + 1 WHERE catalog_name = :catalog AND document_key = :counter"
)
_GET = text("SELECT version, body FROM frazil_registry WHERE catalog_name = :catalog AND document_key = :key")
_LIST = text(
    "SELECT document_key, version, body FROM frazil_registry WHERE catalog_name = :catalog AND document_key <> :counter"
    " AND substr(document_key, 1, :length) = :prefix AND version > :newer_than ORDER BY document_key"
)
_INSERT = text(
    "INSERT INTO frazil_registry (catalog_name, document_key, version, body) VALUES (:catalog, :key, :version, :body)"
)
_UPDATE = text(
    "UPDATE frazil_registry SET version = :version, body = :body"
    " WHERE catalog_name = :catalog AND document_key = :key AND version = :expected"
)
_DELETE = text(
    "DELETE FROM frazil_registry WHERE catalog_name = :catalog AND document_key = :key AND version = :expected"
)


@dataclass(frozen=True)
class Document:
    key: str
    version: int
    """The number of the change that made it what it is."""
    body: bytes


class Registry:
    """The documents of one catalog. Methods block, and several threads may call them at once."""

    def __init__(self, engine: Engine, catalog_name: str) -> None:
        self._engine = engine
        self._catalog = catalog_name
        self._ready = False
        self._making_ready = threading.Lock()

    def version(self) -> int:
        """The number of the newest change of any document; 0 before the first."""
        with self._transaction("look at the registry") as connection:
            return self._changes(connection)

    def get(self, key: str) -> Document | None:
        with self._transaction("read the registry") as connection:
            row = connection.execute(_GET, {"catalog": self._catalog, "key": _named(key)}).one_or_none()
        return None if row is None else Document(key, int(row.version), bytes(row.body))

    def list(self, prefix: str = "", *, newer_than: int = 0) -> list[Document]:
        """The documents whose key begins so, by key; with `newer_than` only those changed after that change."""
        wanted = {"prefix": prefix, "length": len(prefix), "newer_than": newer_than}
        with self._transaction("list the registry") as connection:
            rows = connection.execute(_LIST, {"catalog": self._catalog, "counter": _COUNTER, **wanted}).all()
        return [Document(row.document_key, int(row.version), bytes(row.body)) for row in rows]

    def put(self, key: str, body: bytes, expected_version: int | None) -> Document:
        """Replace the document if it has this version, or with None create it; `Conflict` if the version is another."""
        row = {"catalog": self._catalog, "key": _named(key), "body": body}
        with self._transaction("write to the registry") as connection:
            version = self._next(connection)
            if expected_version is None:
                try:
                    connection.execute(_INSERT, {**row, "version": version})
                except IntegrityError as error:
                    raise _moved(key) from error
            elif not connection.execute(_UPDATE, {**row, "version": version, "expected": expected_version}).rowcount:
                raise _moved(key)
        return Document(key, version, body)

    def delete(self, key: str, expected_version: int) -> None:
        """Remove the document if it has this version; `Conflict` if the version is another."""
        row = {"catalog": self._catalog, "key": _named(key), "expected": expected_version}
        with self._transaction("write to the registry") as connection:
            self._next(connection)
            if not connection.execute(_DELETE, row).rowcount:
                raise _moved(key)

    @contextlib.contextmanager
    def _transaction(self, doing: str) -> Iterator[Connection]:
        with database_errors(doing):
            self._make_ready()
            with self._engine.begin() as connection:
                yield connection

    def _make_ready(self) -> None:
        """See that the table and its counter are there. Several processes may do so at the same moment."""
        if self._ready:
            return
        with self._making_ready:
            try:
                _TABLE.create(self._engine, checkfirst=True)
            except SQLAlchemyError:
                if not inspect(self._engine).has_table(_TABLE.name):
                    raise
            counter = {"catalog": self._catalog, "key": _COUNTER}
            with self._engine.begin() as connection:
                missing = connection.execute(_GET, counter).one_or_none() is None
            if missing:
                # Another process may make it between the look and the leap.
                with contextlib.suppress(IntegrityError), self._engine.begin() as connection:
                    connection.execute(_INSERT, {**counter, "version": 0, "body": b""})
            self._ready = True

    def _next(self, connection: Connection) -> int:
        connection.execute(_RAISE, {"catalog": self._catalog, "counter": _COUNTER})
        return self._changes(connection)

    def _changes(self, connection: Connection) -> int:
        return int(connection.execute(_GET, {"catalog": self._catalog, "key": _COUNTER}).one().version)


def _named(key: str) -> str:
    assert 0 < len(key) <= MAX_KEY, "the empty key is the counter's"
    return key


def _moved(key: str) -> Conflict:
    return Conflict(
        f"another process changed the document {key!r} at the same time",
        code="document_moved",
        hint="read the document again, then retry",
    )


def update_document(registry: Registry, key: str, step: Callable[[bytes | None], bytes | None]) -> None:
    """Compare and swap until it goes through. `step` gets the body as it is, and returns None to leave it so.

    It may be called several times, and after a lost answer on its own result: a step that was done must change nothing.
    """
    for attempt in range(_TRIES):
        document = registry.get(key)
        body = step(None if document is None else document.body)
        if body is None:
            return
        try:
            registry.put(key, body, None if document is None else document.version)
        except Conflict as moved:
            if moved.code != "document_moved":
                raise
            time.sleep(random.uniform(0, _PAUSE_SECONDS * (attempt + 1)))  # noqa: S311 - so that two do not keep step
            continue
        return
    raise Unavailable(
        f"the document {key!r} could not be written: other processes change it all the time", code="registry_busy"
    )
