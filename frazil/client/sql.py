"""The asking half of a client: SQL at a stated freshness, the history of tables, and the way out to other tools."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from frazil.client.answer import Answer
from frazil.client.transport import Transport, not_frazil
from frazil.errors import InvalidInput
from frazil.requests import DEFAULT_FRESHNESS, DEFAULT_TIMEOUT_S, Format, Freshness, WhenBehind

Time = datetime | str

_PATIENCE_S = 30.0
"""Beyond a query's own time limit: it may stand in the queue first, and its answer travels."""


@dataclass(frozen=True)
class Written:
    """An answer as the server wrote it in one of its formats, and what it says about it."""

    facts: Mapping[str, Any]
    """The JSON answer, for `json` with its columns and rows."""
    content: bytes = field(repr=False)


class Queries(Transport):
    """What a client asks. Asking again is safe, so that a lost connection is simply asked again."""

    def __init__(
        self, url: str, token: str, *, timeout_s: float = 60.0, retry_s: float = 60.0, read_your_writes: bool = False
    ) -> None:
        """`timeout_s` bounds one request, `retry_s` all tries of it together.

        With `read_your_writes`, every query includes, or waits for, what this client has written and read before, on
        whichever gateway and at either freshness. Queries of the past (`as_of`, `snapshot`) are left as they are.
        """
        super().__init__(url, token, timeout_s=timeout_s, retry_s=retry_s)
        self._read_your_writes = read_your_writes
        self._seen = ""
        self._seeing = threading.Lock()

    def sql(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        freshness: Freshness = DEFAULT_FRESHNESS,
        min_token: str | None = None,
        as_of: Time | Mapping[str, Time] | None = None,
        snapshot: Mapping[str, int] | None = None,
        max_rows: int | None = None,
        timeout_s: float | None = None,
        when_behind: WhenBehind | None = None,
    ) -> Answer:
        """Ask one SELECT. `parameters` fill `?` in order, or `$name` by name.

        `live` answers include every event that had its receipt before; `committed` the newest snapshot alone.
        `min_token` is the token of a receipt or of an answer: what it stands for is included, or waited for. `as_of`
        and `snapshot` go back in time, for all tables or for those named.
        """
        written = self.sql_written(
            text,
            parameters,
            format="arrow",
            freshness=freshness,
            min_token=min_token,
            as_of=as_of,
            snapshot=snapshot,
            max_rows=max_rows,
            timeout_s=timeout_s,
            when_behind=when_behind,
        )
        return Answer.of(written.facts, written.content)

    def sql_written(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        format: Format,
        min_token: str | None = None,
        as_of: Time | Mapping[str, Time] | None = None,
        timeout_s: float | None = None,
        **words: Any,
    ) -> Written:
        """The same as the bytes of a format, to be stored or passed on. The other words are those of `sql`."""
        past = as_of is not None or words.get("snapshot") is not None
        asked = {
            "sql": text,
            "parameters": _parameters(parameters),
            "min_token": min_token if past else self._since(min_token),
            "as_of": _times(as_of),
            "format": format,
            "timeout_s": timeout_s,
            **words,
        }
        response = self._send(
            "POST",
            "/v1/query",
            json_body={word: value for word, value in asked.items() if value is not None},
            timeout_s=(timeout_s or DEFAULT_TIMEOUT_S) + _PATIENCE_S,
        )
        try:
            facts = json.loads(response.content if format == "json" else response.headers["Frazil-Answer"])
        except (KeyError, ValueError) as error:
            raise not_frazil("/v1/query") from error
        if not isinstance(facts, dict):
            raise not_frazil("/v1/query")
        if not past:
            self._saw(str(facts.get("token") or ""))
        return Written(facts, response.content)

    def history(self, table: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        """The snapshots that led to the table's state, newest first."""
        answer = self._call("GET", f"{table_path(table)}/history", params=_given(limit=limit))
        snapshots: list[dict[str, Any]] = answer["snapshots"]
        return snapshots

    def row_history(self, table: str, id: str) -> dict[str, Any]:
        """Every version of the row of one event id, oldest first, those not committed yet included."""
        return self._call("GET", f"{table_path(table)}/rows/{quote(id, safe='')}/history")

    def key_history(self, table: str, **key: object) -> dict[str, Any]:
        """Every event of one key of an entity, oldest first, also those that did not apply."""
        params = {"key": [f"{column}={value}" for column, value in key.items()]}
        return self._call("GET", f"{table_path(table)}/rows", params=params)

    def changes(
        self, table: str, from_snapshot: int, to_snapshot: int | None = None, *, limit: int | None = None
    ) -> dict[str, Any]:
        """The rows that came and went between two snapshots, by default up to the newest."""
        params = {"from": from_snapshot} | _given(to=to_snapshot, limit=limit)
        return self._call("GET", f"{table_path(table)}/changes", params=params)

    def export_hint(self, table: str) -> dict[str, Any]:
        """Let the table's folder name its newest state, for tools that know no catalog; says how they open it."""
        return self._call("POST", f"{table_path(table)}/export-hint")

    def _saw(self, token: str) -> None:
        """Remember what was written or read, for the queries to come."""
        if self._read_your_writes and token:
            with self._seeing:
                self._seen = merged(self._seen, token)

    def _since(self, min_token: str | None) -> str | None:
        with self._seeing:
            seen = self._seen
        return merged(seen, min_token) if seen and min_token else min_token or seen or None


def merged(first: str, second: str) -> str:
    """The token that is reached when both are."""
    if not first or first == second:
        return second
    from frazil.events import Token

    return str(Token.parse(first).merge(Token.parse(second)))


def table_path(name: str) -> str:
    return f"/v1/tables/{quote(name, safe='.')}"


def _given(**words: Any) -> dict[str, Any]:
    return {word: value for word, value in words.items() if value is not None}


def _parameters(given: Sequence[Any] | Mapping[str, Any] | None) -> list[Any] | dict[str, Any] | None:
    if given is None or isinstance(given, Mapping):
        return dict(given) if given else None
    if isinstance(given, str | bytes):
        raise InvalidInput(
            "parameters are a list or a dictionary, not a text", code="bad_parameters", hint="write [value]"
        )
    return list(given) or None


def _times(given: Time | Mapping[str, Time] | None) -> str | dict[str, str] | None:
    if given is None:
        return None
    return {table: _time(at) for table, at in given.items()} if isinstance(given, Mapping) else _time(given)


def _time(at: Time) -> str:
    if isinstance(at, str):
        return at
    if at.tzinfo is None:
        raise InvalidInput(
            f"the time {at.isoformat()} has no zone, so that it means another moment in every place",
            code="time_without_zone",
            hint="pass datetime(…, tzinfo=UTC), or datetime.now().astimezone()",
        )
    return at.isoformat()
