"""Audit log: who did what, when, and with which result. It has no SQL text and no values.

The entries are an append log (`frazil.storage.AppendLog`) with files by day and size. frazil never rewrites or removes
one. How long to keep them is the operator's choice: any file except today's may be moved away at any time.

Entries about tokens are on the disk before their answer is sent. The others are with the operating system by then: a
crash of the process loses none of them, a power cut may lose those of the last half minute.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.access.identity import Identity
from frazil.errors import FrazilError, Unavailable
from frazil.storage import AppendLog

if TYPE_CHECKING:
    import pyarrow as pa

MAX_FILE_BYTES = 64 << 20
_MAX_TABLES = 100
_MAX_TEXT = 200


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    action: str
    """query, search, token.create, token.rotate, token.revoke, or denied."""
    outcome: str = "ok"
    """ok, or the code of the error."""
    token_id: str | None = None
    token_name: str | None = None
    client: str | None = None
    """The address that the request came from."""
    sql_hash: str | None = None
    tables: tuple[str, ...] = ()
    rows: int | None = None
    ms: float | None = None
    snapshot: str | None = None
    """The freshness token of the cut that was read."""
    subject: str | None = None
    """The id of the token that was acted on, or the route that was refused."""
    left_out: int | None = None
    """How many more refusals of this address there were that are not logged one by one."""


class AuditLog:
    def __init__(self, folder: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self.folder = folder
        self._log = AppendLog(folder, max_file_bytes=max_file_bytes, daily=True, keep_open=True)
        self._log.create_file()  # the table system.audit needs a file, even an empty one

    @property
    def glob(self) -> str:
        """The files, for DuckDB's `read_json` with `format='newline_delimited', ignore_errors=true`.

        A line that a power cut left half-written comes out as a row of nulls: keep those whose `logged_at` is not null.
        """
        return f"{self.folder}/*.jsonl"

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table `system.audit`."""
        import pyarrow as pa

        return pa.schema(
            {
                "logged_at": pa.timestamp("us", "UTC"),
                "token_id": pa.string(),
                "token_name": pa.string(),
                "action": pa.string(),
                "outcome": pa.string(),
                "sql_hash": pa.string(),
                "tables": pa.list_(pa.string()),
                "rows": pa.int64(),
                "ms": pa.float64(),
                "snapshot": pa.string(),
                "client": pa.string(),
                "subject": pa.string(),
                "left_out": pa.int64(),
            }
        )

    def append(self, entry: AuditEntry, *, durable: bool = False) -> None:
        """Add the entry, with `durable` also to survive a power cut. Raises `Unavailable` if it cannot be written."""
        at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        try:
            # Not `at`: that is a reserved word of DuckDB, and every query would have to quote it.
            self._log.append({"logged_at": at, **_bounded(entry)}, durable=durable)
        except OSError as error:
            raise Unavailable(
                f"the audit log cannot be written: {error.strerror or error}",
                code="audit_unavailable",
                hint="check the disk of the data directory; frazil answers no request that it cannot log",
                retry_after_seconds=5.0,
            ) from error

    def close(self) -> None:
        self._log.close()


def sql_hash(sql: str) -> str:
    """The hash of a query, which the log keeps in place of its text: equal queries have equal hashes."""
    return hashlib.sha256(sql.encode()).hexdigest()


def _bounded(entry: AuditEntry) -> dict[str, object]:
    """The fields that have a value, cut so that an entry fits in one `write`."""
    fields: dict[str, object] = {}
    for name in entry.__dataclass_fields__:
        value = getattr(entry, name)
        if isinstance(value, tuple):
            fields[name] = [text[:_MAX_TEXT] for text in value[:_MAX_TABLES]]
        elif isinstance(value, str) and name != "snapshot":
            fields[name] = value[:_MAX_TEXT]
        elif value is not None:
            fields[name] = value
    return fields


@dataclass
class AuditFields:
    """The fields of the entry that describe the answer."""

    tables: tuple[str, ...] = ()
    rows: int | None = None
    snapshot: str | None = None
    """The freshness token of the cut that was read."""


@contextmanager
def audit_entry(
    log: AuditLog, action: str, identity: Identity, *, words: str | None, client: str | None
) -> Iterator[AuditFields]:
    """What happens inside is in the log when it is left, and how it ended; of its words only the hash.

    Raises `Unavailable` where the log cannot be written, in place of the answer.
    """
    started, fields, outcome = time.monotonic(), AuditFields(), "cancelled"
    try:
        yield fields
        outcome = "ok"
    except FrazilError as error:
        outcome = error.code
        raise
    except Exception:
        outcome = "internal"
        raise
    finally:
        log.append(
            AuditEntry(
                action=action,
                outcome=outcome,
                token_id=identity.id,
                token_name=identity.name,
                client=client,
                sql_hash=None if words is None else sql_hash(words),
                tables=fields.tables,
                rows=fields.rows,
                ms=round((time.monotonic() - started) * 1000, 3),
                snapshot=fields.snapshot,
            )
        )
