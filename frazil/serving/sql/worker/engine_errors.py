"""Engine errors translated: a stable code, and a text that reveals nothing the caller may not know."""

from __future__ import annotations

import re

from frazil.errors import FrazilError
from frazil.serving.sql.errors import (
    ConversionFailed,
    EngineBroken,
    FilesUnreadable,
    OutOfMemory,
    QueryFailed,
    TableNotFound,
)
from frazil.serving.sql.refusals import BadSql

# What the engine puts in front of its messages, through Python's exceptions and through Arrow's alike.
_KIND = re.compile(r"(?:^|: )(\w[\w ]*?) (?:Error|Exception)\b:?\s*")
_ADVICE = re.compile(
    r"\s*(?:Did you mean|Candidate functions|Possible solutions|LINE \d+:|You can add explicit).*", re.S
)
_ADDRESS = re.compile(r"(?:\w+://|/)[^\s'\",;)]*/[^\s'\",;)]*")
_MISSING_TABLE = re.compile(r"Table with name (\S+) does not exist")
_MEMORY = (
    "bad_alloc",
    "bad allocation",
    "ut of memory",
    "failed to allocate",
    "Cannot allocate",
    "malloc of size",
    "llocation failure",
)
# Only here the words are looked at: in the others a caller's own text may be quoted.
_VAGUE = ("", "internal", "fatal", "io")
_WITHHELD = "A value of a row does not allow this; which one is not shown, since the token sees only part of the table."
_LONGEST = 500


def translated(error: BaseException, *, restricted: bool, hidden: tuple[str, ...] = ()) -> FrazilError:
    """The error to answer with. `restricted`: some rows or values are hidden from the caller, so values are withheld.

    `hidden` are names inside the engine; a text with one of them in it is not passed on.
    """
    if isinstance(error, FrazilError):
        return error
    message_of_engine = str(error)
    found = _KIND.search(message_of_engine)
    kind = found.group(1).strip().lower() if found else ""
    if (
        isinstance(error, MemoryError)
        or kind == "out of memory"
        or (kind in _VAGUE and _is_about_memory(message_of_engine))
    ):
        return OutOfMemory(
            "the query needs more memory than a worker has",
            hint="filter or aggregate earlier, select fewer columns, or raise query.worker_memory",
        )
    if isinstance(error, RecursionError) or "expression depth" in message_of_engine.lower():
        return BadSql("the statement is nested too deeply", hint="write it flatter")
    message = _cleaned(message_of_engine[found.end() :] if found else message_of_engine, hidden)
    if kind in ("parser", "binder", "catalog", "syntax"):
        missing = _MISSING_TABLE.search(message_of_engine)
        if missing:
            return TableNotFound(
                f"there is no table {missing.group(1)}", hint="list the tables with `frazil tables list`"
            )
        return BadSql(message or "the statement cannot be understood", hint="check names, types and the syntax")
    if kind in ("io", "http", "permission"):
        return FilesUnreadable("a file of the table could not be read", hint="try again; if it stays, look at the log")
    if kind in ("internal", "fatal"):
        return EngineBroken("the engine could not run this statement", hint="write it in another way")
    if restricted:
        return ConversionFailed(_WITHHELD, hint="use TRY_CAST, or guard the expression with CASE")
    if kind in ("conversion", "out of range"):
        return ConversionFailed(message or "a value does not fit", hint="TRY_CAST gives NULL instead of an error")
    return QueryFailed(message or "the statement failed", hint="check the arguments of its functions")


def _is_about_memory(message_of_engine: str) -> bool:
    return any(sign in message_of_engine.lower() for sign in _MEMORY)


def _cleaned(message: str, hidden: tuple[str, ...]) -> str:
    message = _ADVICE.sub("", message)
    message = _ADDRESS.sub("…", message)
    message = " ".join(message.split())[:_LONGEST]
    return "" if any(name in message for name in hidden) else message
