"""Refusals of statements: the three errors of the statement wall."""

from __future__ import annotations

from frazil.errors import InvalidInput


class BadSql(InvalidInput):
    """The parser does not understand it."""

    code = "bad_sql"


class SqlRefused(InvalidInput):
    """It is SQL, but not of the kind that is run here; the message names the construct."""

    code = "sql_refused"


class FunctionNotAllowed(InvalidInput):
    """It calls a function that is not on the list of `functions.py`."""

    code = "function_not_allowed"
