"""Database of catalog and registry: its errors as errors of frazil."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DatabaseError, SQLAlchemyError

from frazil.errors import FrazilError, Misconfigured, Unavailable


@contextmanager
def database_errors(doing: str) -> Iterator[None]:
    """Raise the errors of the database as errors of frazil."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise database_error(doing, error) from error


def database_error(doing: str, error: Exception) -> FrazilError:
    """A damaged file is `Misconfigured`; everything else may work later."""
    if isinstance(error, DatabaseError) and isinstance(error.orig, sqlite3.DatabaseError) and _is_damage(error.orig):
        return catalog_damaged(str(error.orig))
    return Unavailable(
        f"cannot {doing}: {type(error).__name__}: {str(error).splitlines()[0][:200]}",
        code="lake_unavailable",
        hint="check that frazil can reach the catalog's database and the warehouse",
    )


def catalog_damaged(what: str) -> Misconfigured:
    return Misconfigured(
        f"the catalog cannot be opened: {what}",
        code="catalog_damaged",
        hint="restore the catalog from a backup; or stop frazil, move it away and run `frazil catalog repair`",
    )


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
