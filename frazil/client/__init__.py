"""The Python client: publish events, ask in SQL and look after tables over HTTP.

Whatever the network does, publishing again is safe: every event has its id before the first try, so that a batch whose
answer was lost counts once. Errors are those of `frazil.errors`, with the server's code, hint and details.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.client.answer import Answer, Cut
from frazil.client.artifacts import Artifacts
from frazil.client.builds import Builds
from frazil.client.dead_letters import DeadLetters
from frazil.client.embeddings import Embeddings
from frazil.client.event_bodies import Body, arrow_batches, event_batches
from frazil.client.loads import Loads
from frazil.client.maintenance import Upkeep
from frazil.client.search import SearchAnswer, SearchHit, Searching
from frazil.client.sql import merged, table_path
from frazil.client.tokens import Tokens
from frazil.client.trials import Trials
from frazil.errors import FrazilError, InvalidInput, Misconfigured, Unavailable
from frazil.storage import read_private

__all__ = ["Answer", "Client", "Cut", "Receipt", "SearchAnswer", "SearchHit", "locate", "merged"]


@dataclass(frozen=True)
class Receipt:
    """All events are fsynced in the bus. `duplicates` of them were there before, under the same id.

    A batch that had to be sent again counts as duplicates what its first try had written unheard.
    """

    table: str
    accepted: int
    duplicates: int
    token: str
    snapshot_id: int | None = None


def locate(url: str | None = None, token: str | None = None, *, data_dir: Path | None = None) -> tuple[str, str]:
    """The address and token to use: as given, else from the environment, else from the data directory."""
    url = url or os.environ.get("FRAZIL_URL")
    token = token or os.environ.get("FRAZIL_TOKEN")
    data = data_dir or Path(os.environ.get("FRAZIL_DATA_DIR") or "frazil-data")
    if not url:
        try:
            url = str(json.loads((data / "run" / "supervisor.json").read_bytes())["url"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                f"no frazil has been started on {data.absolute()}",
                code="not_running",
                hint="start it with `frazil up`, or set FRAZIL_URL and FRAZIL_TOKEN to use one elsewhere",
            ) from error
    if not token:
        try:
            token = read_private(data.absolute() / "admin.token", "the admin token").strip()
        except Misconfigured as error:
            run_as_owner = "set FRAZIL_TOKEN, or run as the user who started frazil, beside its data directory"
            raise Misconfigured(
                f"there is no token: FRAZIL_TOKEN is not set and {error.message}",
                code="no_token",
                hint=error.hint if error.code == "secret_file_mode" else run_as_owner,
            ) from error
    return url, token


class Client(Searching, Upkeep, DeadLetters, Loads, Embeddings, Artifacts, Builds, Trials):
    """Everything that one frazil does for a program. A context manager; threads may share it."""

    @property
    def tokens(self) -> Tokens:
        """Create, list, rotate and revoke tokens, as an admin."""
        return Tokens(self)

    # Events

    def publish(
        self, table: str, events: Iterable[Mapping[str, Any]] | Any, *, wait: bool = False, timeout_s: float = 30.0
    ) -> Receipt:
        """Publish events `{id?, op?, ts?, actor?, source?, workspace?, data: {…}}`, or an Arrow table of rows.

        They travel in batches, each of them all or nothing; an error says how many events before it are safe. With
        `wait`, returns when all are visible, or raises `VisibilityTimeout` (the events are safe then too).
        """
        batches = arrow_batches(events) if hasattr(events, "__arrow_c_stream__") else event_batches(events)
        return self._publish(table, batches, wait=wait, timeout_s=timeout_s)

    def publish_rows(
        self,
        table: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        id: str | Callable[[Mapping[str, Any]], str] | None = None,
        wait: bool = False,
        timeout_s: float = 30.0,
    ) -> Receipt:
        """Publish plain rows. `id` names the column, or computes the text, that makes an event the same event."""

        def events() -> Iterator[dict[str, Any]]:
            for row in rows:
                event: dict[str, Any] = {"data": row}
                if id is not None:
                    event["id"] = str(id(row) if callable(id) else row[id])
                yield event

        return self.publish(table, events(), wait=wait, timeout_s=timeout_s)

    def publish_body(
        self, table: str, body: bytes, content_type: str, *, wait: bool = False, timeout_s: float = 30.0
    ) -> Receipt:
        """Publish one request as it is. Every event in it must have an id, because it may be sent more than once."""
        answer = self._call(
            "POST",
            f"{table_path(table)}/events",
            content=body,
            headers={"Content-Type": content_type},
            params={"wait": "visible", "timeout_s": timeout_s} if wait else None,
            timeout_s=timeout_s + 10 if wait else None,
        )
        self._saw(str(answer["token"]))
        return Receipt(
            table=str(answer.get("table", table)),
            accepted=int(answer["accepted"]),
            duplicates=int(answer["duplicates"]),
            token=str(answer["token"]),
            snapshot_id=answer.get("snapshot_id"),
        )

    def _publish(self, table: str, batches: Iterable[Body], *, wait: bool, timeout_s: float) -> Receipt:
        total: Receipt | None = None
        safe = 0
        following = iter(batches)
        batch = next(following, None)
        if batch is None:
            raise InvalidInput("there are no events", code="no_events", hint="pass at least one")
        while batch is not None:
            body, count, content_type = batch
            batch = next(following, None)
            try:
                # The stream is in order: when its last batch is visible, all are.
                receipt = self.publish_body(table, body, content_type, wait=wait and batch is None, timeout_s=timeout_s)
            except FrazilError as error:
                raise _counted_from(error, safe) from error
            safe += count
            total = receipt if total is None else _sum(total, receipt)
        assert total is not None
        return total

    def visibility(self, token: str, wait_s: float = 0.0) -> dict[str, Any]:
        """Whether the writes behind the token are committed, and in which snapshots."""
        return self._call("GET", "/v1/visibility", params={"token": token, "wait_s": wait_s}, timeout_s=wait_s + 10)

    # Tables

    def tables(self, *, dropped: bool = False) -> list[dict[str, Any]]:
        answer = self._call("GET", "/v1/tables", params={"dropped": "true"} if dropped else None)
        found: list[dict[str, Any]] = answer["tables"]
        return found

    def table(self, name: str) -> dict[str, Any]:
        return self._call("GET", table_path(name))

    def create_table(self, name: str, columns: Mapping[str, Any], **declared: Any) -> dict[str, Any]:
        """Declare a table; `declared` are the other fields of a declaration. The same again changes nothing."""
        return self._call("POST", "/v1/tables", json_body={"name": name, "columns": dict(columns), **declared})

    def alter_table(self, name: str, **changes: Any) -> dict[str, Any]:
        """`add_columns={…}`, `widen={…}`, and what else a declaration has: `text`, `search`, `description`, …"""
        return self._call("PATCH", table_path(name), json_body=changes)

    def drop_table(self, name: str) -> dict[str, Any]:
        """Take the table away from readers and writers; its data is kept."""
        return self._call("DELETE", table_path(name), again=False)

    def purge_table(self, name: str, *, dry_run: bool = True) -> dict[str, Any]:
        """Delete for good what was dropped under this name: files, stream and all. By default only tell what."""
        params = {"purge": "true", "dry_run": "true" if dry_run else "false"}
        return self._call("DELETE", table_path(name), params=params, again=dry_run)

    def undrop_table(self, name: str) -> dict[str, Any]:
        return self._call("POST", f"{table_path(name)}/undrop", again=False)

    def repair_table(self, name: str, what: str, *, accept_loss: bool = False) -> dict[str, Any]:
        """Decide what a person must: `what` is `bus` or `watermark`."""
        return self._call(
            "POST", f"{table_path(name)}/repair", json_body={"what": what, "accept_loss": accept_loss}, again=False
        )

    # The server

    def health(self) -> dict[str, Any]:
        return self._call("GET", "/v1/health")

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/v1/status")

    def journal(self, *, table: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """What was committed and what failed, newest first."""
        params: dict[str, Any] = {"limit": limit} | ({"table": table} if table else {})
        answer = self._call("GET", "/v1/journal", params=params)
        entries: list[dict[str, Any]] = answer["entries"]
        return entries


def _sum(first: Receipt, second: Receipt) -> Receipt:
    return Receipt(
        second.table,
        first.accepted + second.accepted,
        first.duplicates + second.duplicates,
        merged(first.token, second.token),
        second.snapshot_id,
    )


def _counted_from(error: FrazilError, safe: int) -> FrazilError:
    """The same error with its event numbers counted from the beginning of the call, and what is safe by then."""
    if not safe:
        return error
    if isinstance(error.details, list):
        error.details = [
            {**item, "index": item["index"] + safe} if isinstance(item, dict) and "index" in item else item
            for item in error.details
        ]
    error.message = f"{error.message} (the first {safe:,} events are safe)"
    error.args = (error.message,)
    return error
