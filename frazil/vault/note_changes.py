"""Note changes: the events that bring a table up to date with the files, under ids that make a repeat safe.

The id of an event is made of the row it writes and of the id of the version that it follows. So a run that was killed
and begins anew gives the same events the same ids, and the bus takes them for what they are: repetitions. And an edit
that goes back and forth is a new event at each step, because each follows another one. The first half of an id tells
whether a row is as the file has it, without reading the row; whoever else writes the row gives it another id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Key = tuple[Any, ...]
Row = Mapping[str, Any]
_OURS = "vault:"


@dataclass(frozen=True)
class NoteChange:
    """One event to be published."""

    what: Literal["new", "changed", "deleted"]
    key: Key
    event: Mapping[str, Any]


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=datetime.isoformat)


def row_digest(row: Row) -> str:
    """The same for the same values, whatever the order of the columns."""
    return hashlib.sha256(_ENCODER.encode(row).encode()).hexdigest()[:40]


def is_ours(id: str) -> bool:
    """Whether a row's newest version was written from a file."""
    return id.startswith(_OURS)


def changes(
    key_columns: Collection[str],
    current: Mapping[Key, str],
    wanted: Mapping[Key, Row],
    *,
    graves: Callable[[], Mapping[Key, str]],
    keep: Callable[[Key], bool],
) -> list[NoteChange]:
    """The events from `current` (ids by key) to `wanted`, in the order of the keys.

    `graves` has the ids of the deletions of keys that are no more: what is created anew follows its deletion. A key
    that is not wanted is deleted unless `keep` says otherwise.
    """
    found = []
    buried: Mapping[Key, str] = graves() if any(key not in current for key in wanted) else {}
    for key in sorted({*current, *wanted}):
        row, before = wanted.get(key), current.get(key)
        if row is None and before is not None:
            if not keep(key):
                named = dict(zip(key_columns, key, strict=True))
                event = {"id": _id(f"gone-{row_digest(named)}", before), "op": "delete", "source": "vault"}
                found.append(NoteChange("deleted", key, {**event, "data": named}))
        elif row is not None:
            digest = row_digest(row)
            if before is not None and before.startswith(f"{_OURS}{digest}:"):
                continue  # written from this very row
            follows = before or buried.get(key, "")
            event = {"id": _id(digest, follows), "op": "upsert", "source": "vault"}
            found.append(NoteChange("new" if before is None else "changed", key, {**event, "data": row}))
    return found


def _id(digest: str, follows: str) -> str:
    return f"{_OURS}{digest}:{hashlib.sha256(follows.encode()).hexdigest()[:40]}"
