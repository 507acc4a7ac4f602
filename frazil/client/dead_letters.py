"""The dead-letter half of a client: events that could not be committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.client.jobs import Jobs
from frazil.client.sql import table_path


class DeadLetters(Jobs):
    def dead_letters(self, table: str, *, limit: int = 100) -> dict[str, Any]:
        """`total` and the first of them in the order of their positions, each with its reason and its raw event."""
        return self._call("GET", f"{table_path(table)}/dead-letters", params={"limit": limit})

    def resend_dead_letters(self, table: str, positions: Sequence[int] | None = None) -> dict[str, Any]:
        """Publish them again under their ids, all or those at these positions: `resent`, `left`, and who is `refused`.

        Asked again after an answer that got lost, it sends what is left.
        """
        wanted = {} if positions is None else {"positions": list(positions)}
        return self._call("POST", f"{table_path(table)}/dead-letters/resend", json_body=wanted)

    def discard_dead_letters(self, table: str, positions: Sequence[int]) -> dict[str, Any]:
        """Take those at these positions out for good, without sending them: `discarded` and `left`."""
        return self._call("POST", f"{table_path(table)}/dead-letters/discard", json_body={"positions": list(positions)})
