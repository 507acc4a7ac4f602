"""The registry of the lake, as far as it is needed here: small documents with compare-and-swap."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from frazil.errors import Conflict, Unavailable

_TRIES = 50
_PAUSE_SECONDS = 0.01


class Document(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class Documents(Protocol):
    def get(self, key: str) -> Document | None: ...
    def list(self, prefix: str = "") -> Sequence[Document]: ...
    def put(self, key: str, body: bytes, expected_version: int | None) -> Document:
        """Replace the document of this version, or with None make the first; `Conflict` `document_moved` otherwise."""

    def delete(self, key: str, expected_version: int) -> None: ...


def change(documents: Documents, key: str, step: Callable[[bytes | None], bytes | None]) -> None:
    """Compare and swap until it goes through. `step` gets the body as it is, and returns None to leave it so.

    It may be called several times, and after a lost answer on its own result: a step that was done must change nothing.
    """
    for attempt in range(_TRIES):
        document = documents.get(key)
        body = step(None if document is None else document.body)
        if body is None:
            return
        try:
            documents.put(key, body, None if document is None else document.version)
        except Conflict as moved:
            if moved.code != "document_moved":
                raise
            time.sleep(random.uniform(0, _PAUSE_SECONDS * (attempt + 1)))  # noqa: S311 - so that two do not keep step
            continue
        return
    raise Unavailable(f"{key!r} changes faster than it can be written", code="registry_busy")
