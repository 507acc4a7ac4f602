"""Served artifact: Quack on the current artifact of a table, and on each that becomes current, on the same port."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from frazil.errors import NotFound
from frazil.serving.artifacts.local_copies import LocalCopies, LocalCopy
from frazil.serving.artifacts.parts.duckdb_part import DUCKDB
from frazil.serving.artifacts.shelf import Shelf
from frazil.serving.quack.server import QuackServer


@dataclass(frozen=True)
class _Serving:
    copy: LocalCopy
    server: QuackServer

    def close(self) -> None:
        self.server.close()
        self.copy.release()


class QuackOfTable:
    """Holds one generation at a time, with a lease like any other reader. `turn` now and then, `close` at the end."""

    def __init__(self, shelf: Shelf, copies: LocalCopies, *, port: int, token: str) -> None:
        self._shelf = shelf
        self._copies = copies
        self._port = port
        self._token = token
        self._reader = f"quack-{uuid.uuid4().hex[:12]}"
        self._serving: _Serving | None = None

    @property
    def generation(self) -> str | None:
        return None if self._serving is None else self._serving.copy.manifest.generation

    def turn(self) -> bool:
        """See to it that the current artifact is served; whether something was started. Raises `NotFound` for none.

        If the newer one cannot be fetched or started, the old one goes on, and the next turn tries again.
        """
        held = () if self.generation is None else (self.generation,)
        current = self._shelf.serve(self._reader, held).current
        if current is None:
            raise NotFound(
                f"no artifact of {self._shelf.table.removeprefix('main.')!r} is current",
                code="no_generation",
                hint=f"frazil build {self._shelf.table.removeprefix('main.')}",
            )
        serving = self._serving
        if serving is not None and serving.server.is_alive and self.generation == current.generation:
            return False
        self._shelf.take(self._reader, current.generation, beside=held)
        copy = self._copies.fetch(current)
        if serving is not None:
            # One port, one server: it is cut off now that the next one is complete and at hand.
            serving.close()
            self._serving = None
        try:
            server = QuackServer(copy.folder / DUCKDB, port=self._port, token=self._token)
        except BaseException:
            copy.release()
            raise
        self._serving = _Serving(copy, server)
        self._shelf.serve(self._reader, [current.generation])
        return True

    def close(self) -> None:
        if self._serving is not None:
            self._serving.close()
            self._serving = None
        self._shelf.leave(self._reader)
