"""Dead letters: events of a table that could not be committed."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.client.transport import JsonObject, Transport, table_path


class DeadLettersClient:
    """The dead letters of tables. Calling it is the same as `list`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def resend(self, table: str, positions: Sequence[int] | None = None) -> JsonObject:
        """Publish them again under their ids, all or those at `positions`: `resent`, `left` and `refused`.

        Calling it again after a lost answer sends the ones that are left.
        """
        body = {} if positions is None else {"positions": list(positions)}
        return self._transport.call("POST", f"{table_path(table)}/dead-letters/resend", json_body=body)

    def discard(self, table: str, positions: Sequence[int]) -> JsonObject:
        """Remove those at `positions` permanently without sending them: `discarded` and `left`."""
        body = {"positions": list(positions)}
        return self._transport.call("POST", f"{table_path(table)}/dead-letters/discard", json_body=body)

    def list(self, table: str, *, limit: int = 100) -> JsonObject:
        """`total`, and the first ones in the order of their positions, each with its reason and its raw event."""
        return self._transport.call("GET", f"{table_path(table)}/dead-letters", params={"limit": limit})

    __call__ = list
