"""An answer and its entry in the audit log: there is none without the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from frazil.access.audit import AuditEntry, AuditLog, sql_hash
from frazil.access.identity import Identity
from frazil.errors import FrazilError


@dataclass
class Trace:
    """What the entry will say of the answer."""

    tables: tuple[str, ...] = ()
    rows: int | None = None
    snapshot: str | None = None
    """The freshness token of the cut that was read."""


@contextmanager
def audited(
    log: AuditLog, action: str, identity: Identity, *, words: str | None, client: str | None
) -> Iterator[Trace]:
    """What happens inside is in the log when it is left, and how it ended; of its words only the hash.

    Raises `Unavailable` where the log cannot be written, in place of the answer.
    """
    started, trace, outcome = time.monotonic(), Trace(), "cancelled"
    try:
        yield trace
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
                tables=trace.tables,
                rows=trace.rows,
                ms=round((time.monotonic() - started) * 1000, 3),
                snapshot=trace.snapshot,
            )
        )
