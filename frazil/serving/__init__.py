"""Serving: SQL over the tables, answered by walled worker processes.

The engine lives in the workers only: nothing that is imported from here loads it into the gateway. The names below are
imported when they are first used: the settings of this room are read by every command, which must not wait for Arrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.serving.sql.errors import (
        Busy,
        FilesUnreadable,
        OutOfMemory,
        QueryTimeout,
        TableNotFound,
        WorkerLost,
    )
    from frazil.serving.sql.folding import Folding
    from frazil.serving.sql.pool import QueryPool
    from frazil.serving.sql.query import Query, Relation, Result, Statement, TableRef, Tail
    from frazil.serving.sql.settings import QuerySettings
    from frazil.serving.sql.walls import walls_of_this_kernel

_HOMES = {
    "Busy": "errors",
    "FilesUnreadable": "errors",
    "Folding": "folding",
    "OutOfMemory": "errors",
    "Query": "query",
    "QueryPool": "pool",
    "QuerySettings": "settings",
    "QueryTimeout": "errors",
    "Relation": "query",
    "Result": "query",
    "Statement": "query",
    "TableNotFound": "errors",
    "TableRef": "query",
    "Tail": "query",
    "WorkerLost": "errors",
    "walls_of_this_kernel": "walls",
}

__all__ = [
    "Busy",
    "FilesUnreadable",
    "Folding",
    "OutOfMemory",
    "Query",
    "QueryPool",
    "QuerySettings",
    "QueryTimeout",
    "Relation",
    "Result",
    "Statement",
    "TableNotFound",
    "TableRef",
    "Tail",
    "WorkerLost",
    "walls_of_this_kernel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.sql.{_HOMES[name]}"), name)
