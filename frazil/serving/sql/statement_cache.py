"""Statement cache: judged statements by their text, so that the same text needs no worker again."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Any

from frazil.serving.sql.query import Statement, TableRef

_MOST = 1000
_MOST_BYTES = 8 << 20


class StatementCache:
    def __init__(self) -> None:
        self._known: OrderedDict[str, Statement] = OrderedDict()
        self._bytes = 0

    def get(self, sql: str) -> Statement | None:
        known = self._known.get(sql)
        if known is not None:
            self._known.move_to_end(sql)
        return known

    def keep(self, sql: str, statement: Statement) -> None:
        """Remember one; the least used are forgotten when there are too many, or too much text."""
        if sql not in self._known:
            self._bytes += len(sql)
        self._known[sql] = statement
        while len(self._known) > _MOST or self._bytes > _MOST_BYTES:
            oldest, _ = self._known.popitem(last=False)
            self._bytes -= len(oldest)


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
