"""Connection to a source, set up so that every session shows a value in the same way; translated errors.

The driver's own text goes through `Dsn.redacted`, and its exception is not chained: a traceback prints what is chained.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from adbc_driver_manager import Error as DriverError
from adbc_driver_manager.dbapi import Connection, Cursor
from adbc_driver_postgresql import StatementOptions, dbapi

from frazil.errors import Conflict, Denied, FrazilError, InvalidInput, Misconfigured, NotFound, Unavailable
from frazil.pipeline.sources.postgres.dsn import NEUTRAL, Dsn

# Connections that wait for hours must not be dropped by a firewall in between: the exporting one sits idle by design.
_ALIVE = {"keepalives": "1", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "6"}
_SERVICE_VARIABLES = ("PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR")
_SESSION = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    # A policy would leave rows out silently; with this, reading such a table is an error.
    "row_security": "off",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
}


@dataclass(frozen=True)
class Timeouts:
    """How long to wait for what, in seconds."""

    connect_seconds: int = 10
    lock_seconds: int = 30
    statement_seconds: int = 3600


class PostgresFailed(Unavailable):
    """The source did not answer, or stopped answering; the same read may succeed later."""

    code = "postgres_unavailable"


@contextmanager
def connect(dsn: Dsn, timeouts: Timeouts) -> Iterator[Connection]:
    """An open connection, outside of any transaction."""
    conninfo = dsn.conninfo(
        connect_timeout=str(timeouts.connect_seconds), application_name="frazil", **_ALIVE, **NEUTRAL
    )
    for name in _SERVICE_VARIABLES:  # the one option that cannot be said to be empty
        os.environ.pop(name, None)
    try:
        # The driver's reader assumes UTF-8, whatever the environment says.
        connection: Connection = dbapi.connect(f"{conninfo} client_encoding='UTF8'", autocommit=True)
    except (DriverError, OSError) as error:
        raise translated(error, dsn, "connecting") from None
    try:
        yield connection
    finally:
        connection.close()


def begin(cursor: Cursor, *, snapshot_id: str | None = None) -> None:
    """Start a transaction that only reads, in the snapshot given or in one that its first query will take."""
    cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    if snapshot_id is not None:
        cursor.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot_id)}")


def configure_session(cursor: Cursor, timeouts: Timeouts) -> None:
    """Set what the text of a value depends on, for this transaction. It is a query: the snapshot is taken by it."""
    wanted = {
        **_SESSION,
        "statement_timeout": f"{timeouts.statement_seconds}s",
        # Whoever waits to alter a table waits for the exporting session, and readers queue up behind him: without this
        # limit the load and he would wait for each other.
        "lock_timeout": f"{timeouts.lock_seconds}s",
    }
    calls = [f"set_config({literal(key)}, {literal(value)}, true)" for key, value in wanted.items()]
    # Postgres 17 can end a transaction for its age; older servers do not know the setting.
    unbounded = "(SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout') AS t"
    rows(cursor, f"SELECT {', '.join(calls)}, {unbounded}")


def rows(cursor: Cursor, sql: str) -> list[dict[str, Any]]:
    """A small answer as dictionaries."""
    cursor.execute(sql)
    found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
    return found


def cursor_of(connection: Connection, batch_bytes: int = 1 << 20) -> Cursor:
    return connection.cursor(adbc_stmt_kwargs={StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(batch_bytes)})


def identifier(*names: str) -> str:
    """A name as SQL writes it, whatever is in it."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


DRIVER_ERRORS = (DriverError, OSError, pa.ArrowException)
# A stream that breaks half-way has no SQLSTATE, only the server's text. These texts mean that the
# request is wrong; whatever else ends a stream (shutdown, timeout, a lost network, a replica that moved on) may pass.
_NOT_PASSING = (
    "division by zero",
    "invalid input syntax",
    "invalid byte sequence",
    "out of range",
    "invalid page",
    "could not read block",
)


def translated(error: BaseException, dsn: Dsn, doing: str) -> FrazilError:
    """The driver's error as one of ours, without the password."""
    text = dsn.redacted(" ".join(str(error).split()))[:500]
    state = getattr(error, "sqlstate", None) or ""
    message = f"{doing} at {dsn.place} failed: {text}"
    if "authentication failed" in text or "no pg_hba.conf entry" in text or state.startswith("28"):
        return Denied(message, code="postgres_denied", hint="check user and password of the DSN, and pg_hba.conf")
    if state == "42501" or "permission denied" in text:
        if "row-level security" in text:
            return _row_security(message)
        return Denied(message, code="postgres_denied", hint="GRANT SELECT on it to the user of the DSN")
    if state == "3D000" or ('database "' in text and "does not exist" in text):
        return Misconfigured(message, code="bad_dsn", hint="check the database name of the DSN")
    if state in ("42P01", "3F000"):
        return NotFound(message, code="postgres_table_gone", hint="it was dropped or renamed; look at the list again")
    if state in ("42703", "42804", "42846"):
        return Conflict(message, code="postgres_table_changed", hint="the table was altered; plan the load again")
    if state == "55P03":
        return PostgresFailed(
            message, code="postgres_locked", hint="somebody alters the table or waits to; try again later"
        )
    if "statement timeout" in text:
        return PostgresFailed(
            message, code="postgres_timeout", hint="raise statement_timeout_seconds or lower range_bytes of the source"
        )
    if "row-level security" in text:
        return _row_security(message)
    if state.startswith(("22", "42", "0A")) or any(part in text for part in _NOT_PASSING):
        return InvalidInput(message, code="postgres_refused", hint="the server refuses this read; see its message")
    return PostgresFailed(message, hint="check that the server runs and can be reached, then try again")


def _row_security(message: str) -> Denied:
    return Denied(
        message,
        code="postgres_row_security",
        hint="policies would hide rows from this user: read as the owner, or as a role with BYPASSRLS",
    )
