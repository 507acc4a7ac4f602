"""Journal notes of the pipeline: entries that a full disk may lose, and that stop nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from frazil.storage import Journal

log = logging.getLogger(__name__)


def note_writer(journal: Journal) -> Callable[..., None]:
    """Appends an entry. A disk that has no room for it must not stop commits that may go elsewhere."""

    def note(kind: str, **entry: Any) -> None:
        try:
            journal.append(kind, **entry)
        except OSError as error:
            log.warning("journal entry lost: %s", error, extra={"table": entry.get("table")})

    return note
