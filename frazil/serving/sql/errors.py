"""Errors of queries, beyond those that every room shares."""

from __future__ import annotations

from typing import Any

from frazil.errors import FrazilError, InvalidInput, NotFound, TooLarge, Unavailable
from frazil.serving.sql.refusals import BadSql, FunctionNotAllowed, SqlRefused


class ConversionFailed(InvalidInput):
    """A value of a row does not fit the type that the statement asks for."""

    code = "conversion_failed"


class QueryFailed(InvalidInput):
    """The statement failed while it ran, by its own doing."""

    code = "query_failed"


class EngineBroken(QueryFailed):
    """The engine contradicted itself; what else it knows is not to be trusted."""


class OutOfMemory(TooLarge):
    """The statement needs more memory than a worker has."""

    code = "out_of_memory"


class QueryTimeout(Unavailable):
    """The deadline passed; the worker was ended."""

    code = "query_timeout"
    status = 504
    transient = False


class Busy(Unavailable):
    """Too many queries wait already."""

    code = "busy"


class WorkerLost(FrazilError):
    """The worker ended in the middle of the query; it was replaced."""

    code = "query_failed"


class TableNotFound(NotFound):
    code = "table_not_found"


class FilesUnreadable(Unavailable):
    """A file of a table could not be read."""

    code = "files_unreadable"


_BY_CODE: dict[str, type[FrazilError]] = {
    kind.code: kind
    for kind in (
        InvalidInput,
        BadSql,
        SqlRefused,
        FunctionNotAllowed,
        ConversionFailed,
        QueryFailed,
        TooLarge,
        OutOfMemory,
        TableNotFound,
        FilesUnreadable,
    )
}
_LONGEST_TEXT = 4000


def encode_error(error: FrazilError) -> dict[str, Any]:
    """An error in the form in which a worker reports it."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def decode_error(report: dict[str, Any]) -> FrazilError:
    """The error that a worker reported; a worker is not trusted, so that an unknown code is a plain failure."""
    kind = _BY_CODE.get(str(report.get("code")), QueryFailed)
    return kind(str(report.get("message", ""))[:_LONGEST_TEXT], hint=str(report.get("hint", ""))[:_LONGEST_TEXT])
