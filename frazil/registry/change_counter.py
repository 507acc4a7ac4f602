"""Change counter of a catalog: shows in microseconds whether anything changed, where a query takes a thread.

SQLite counts the commits of other connections to its file. Other databases have no such count.
"""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

from sqlalchemy import Engine

ChangeCount = tuple[int, int, int]


class ChangeCounter:
    """For one thread at a time. It only reads, and never waits."""

    def __init__(self, engine: Engine) -> None:
        self._path = engine.url.database if engine.dialect.name == "sqlite" else None
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def beat(self) -> ChangeCount | None:
        """The same number as before only if nothing was committed in between. None: unknown, a query is needed."""
        if self._path is None:
            return None
        try:
            # A catalog file that replaced another one starts a new count.
            there = os.stat(self._path)
            if self._connection is None or self._file != (there.st_dev, there.st_ino):
                self._open(self._path)
                self._file = (there.st_dev, there.st_ino)
                assert self._connection is not None
            # All rows: a statement that is not finished would keep the log of changes from being emptied.
            ((count,),) = self._connection.execute("PRAGMA data_version").fetchall()
        except (OSError, sqlite3.Error):
            self.close()
            return None
        return there.st_dev, there.st_ino, int(count)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, path: str) -> None:
        self.close()
        self._connection = sqlite3.connect(
            f"file:{quote(path)}?mode=ro", uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
