"""Statement cache: judged statements by their text, so that the same text needs no worker again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cachetools import LRUCache

from frazil.serving.sql.query import Statement, TableRef

_MAX_STATEMENTS = 1000
_MAX_BYTES = 8 << 20


class StatementCache:
    def __init__(self) -> None:
        self._known: LRUCache[str, Statement] = LRUCache(_MAX_BYTES, getsizeof=_size)

    def get(self, sql: str) -> Statement | None:
        return self._known.get(sql)

    def keep(self, sql: str, statement: Statement) -> None:
        """Remember one; the least recently used are forgotten when there are too many, or too much text."""
        if _size(statement) <= _MAX_BYTES:
            self._known[sql] = statement


def _size(statement: Statement) -> int:
    """The length of its text, and at least the share of one: so one number limits the texts and their number."""
    return max(len(statement.sql), _MAX_BYTES // _MAX_STATEMENTS)


def judged_from(report: dict[str, Any]) -> Statement:
    """What a worker found. `KeyError`, `TypeError` or `ValueError` when it makes no sense."""
    return Statement(str(report["sql"]), tuple(_table(table) for table in report["tables"]))


def _table(values: dict[str, Any]) -> TableRef:
    schema, name = values["reads"]
    return TableRef(
        schema=str(values["schema"]),
        name=str(values["name"]),
        reads=(str(schema), str(name)),
        version=None if values["version"] is None else int(values["version"]),
        as_of=None if values["as_of"] is None else datetime.fromisoformat(values["as_of"]),
        certain=bool(values["certain"]),
    )
