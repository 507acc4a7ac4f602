"""Objects below one prefix of the warehouse: few verbs, the same over a local folder and an S3 bucket.

An object is there as a whole or not at all, and it is durable when its `put` returns. Objects are not changed: a new
content gets a new key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from frazil.errors import InvalidInput
from frazil.storage.warehouse import Warehouse

# No character that any store, signature or XML document would have to write in another way.
_NAME = re.compile(r"[A-Za-z0-9._=+@-]+")
# The prefix of the names of files that a `put` has not finished. They are not objects.
UNFINISHED = ".~put-"


@dataclass(frozen=True)
class StoredObject:
    key: str
    size: int
    modified_at: float
    """Seconds since 1970, by the clock of the store."""


class Objects(Protocol):
    """A key is relative to the prefix: names joined by `/`. Methods block; several threads may call them at once.

    Each raises `Unavailable` when the store does not answer or is full (`disk_full`); trying again is always safe.
    """

    def put_file(self, key: str, path: Path, *, tags: Mapping[str, str] | None = None) -> None:
        """Store this file, in place of what was there. A kill leaves the old content or the new, never a part."""

    def get_file(self, key: str, path: Path) -> None:
        """Write the object to a new local file. Raises `NotFound`; the file may be there in part after an error."""

    def get(self, key: str) -> bytes:
        """A small object as a whole. Raises `NotFound`."""

    def list(self, below: str = "") -> Iterator[StoredObject]:
        """Every object whose key begins so, in no order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove these objects, one after the other in this order. Absent ones are no error."""

    def tag(self, key: str, tags: Mapping[str, str]) -> bool:
        """Set the tags of an object in place of those it has; False where the store has no tags.

        Raises `NotFound`.
        """

    def tags(self, key: str) -> Mapping[str, str] | None:
        """The tags of an object; None where the store has no tags. Raises `NotFound`."""

    def sweep(self, *, older_than_seconds: float) -> int:
        """Remove what a killed `put` began this long ago and never finished; returns how many there were."""


def open_objects(warehouse: Warehouse, prefix: str) -> Objects:
    """The objects below `prefix` in the warehouse, which need not exist yet."""
    checked_key(prefix)
    if warehouse.is_s3:
        from frazil.storage.s3_objects import S3Objects

        return S3Objects(warehouse, prefix)
    from frazil.storage.local_objects import FolderObjects

    return FolderObjects(warehouse.folder() / prefix)


def checked_key(key: str) -> str:
    """The key itself, if it is valid: it stays below the prefix, and all stores read it in the same way."""
    names = key.split("/")
    if not all(_NAME.fullmatch(name) and name not in (".", "..") for name in names) or names[-1].startswith(UNFINISHED):
        raise InvalidInput(f"{key!r} is not a valid object key", code="bad_object_key")
    return key
