"""The Python client: publish events and look after tables over HTTP.

Whatever the network does, publishing again is safe: every event has its id before the first try, so that a batch whose
answer was lost counts once. Errors are those of `frazil.errors`, with the server's code, hint and details.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx

from frazil import __version__, errors
from frazil.client.wire import Body, arrow_batches, encode, event_batches
from frazil.errors import FrazilError, InvalidInput, Misconfigured, Unavailable


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
            token = (data / "admin.token").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(
                f"there is no token: FRAZIL_TOKEN is not set and {data.absolute() / 'admin.token'} cannot be read",
                code="no_token",
                hint="set FRAZIL_TOKEN, or run as the user who started frazil, beside its data directory",
            ) from error
    return url, token


class Client:
    """One connection pool to one frazil. Use it as a context manager, or `close()` it; threads may share it."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 60.0, retry_s: float = 60.0) -> None:
        """`timeout_s` bounds one request, `retry_s` all tries of it together."""
        host = urlsplit(url).hostname
        if host is None:
            raise Misconfigured(f"{url!r} is not an address", code="bad_url", hint="write http://host:7373")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}", "User-Agent": f"frazil-python/{__version__}"},
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            trust_env=host not in ("localhost", "127.0.0.1", "::1"),
        )

    def __repr__(self) -> str:
        return f"<frazil client of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

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
            f"/v1/tables/{quote(table, safe='.')}/events",
            content=body,
            headers={"Content-Type": content_type},
            params={"wait": "visible", "timeout_s": timeout_s} if wait else None,
            timeout_s=timeout_s + 10 if wait else None,
        )
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
        return self._call("GET", _table(name))

    def create_table(self, name: str, columns: Mapping[str, Any], **declared: Any) -> dict[str, Any]:
        """Declare a table; `declared` are the other fields of a declaration. The same again changes nothing."""
        return self._call("POST", "/v1/tables", json_body={"name": name, "columns": dict(columns), **declared})

    def alter_table(self, name: str, **changes: Any) -> dict[str, Any]:
        """`add_columns={…}`, `widen={…}`, `description`, `owner`, `tags`, `freshness_target_seconds`."""
        return self._call("PATCH", _table(name), json_body=changes)

    def drop_table(self, name: str) -> dict[str, Any]:
        """Take the table away from readers and writers; its data is kept."""
        return self._call("DELETE", _table(name), again=False)

    def undrop_table(self, name: str) -> dict[str, Any]:
        return self._call("POST", f"{_table(name)}/undrop", again=False)

    def repair_table(self, name: str, what: str, *, accept_loss: bool = False) -> dict[str, Any]:
        """Decide what a person must: `what` is `bus` or `watermark`."""
        return self._call(
            "POST", f"{_table(name)}/repair", json_body={"what": what, "accept_loss": accept_loss}, again=False
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

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json_body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        again: bool = True,
    ) -> dict[str, Any]:
        """One call, tried again while that can help.

        With `again=False` the call is repeated only when it was certainly not carried out.
        """
        deadline = time.monotonic() + self._retry_s
        request = self._http.build_request(
            method,
            path,
            params=params,
            content=encode(json_body) if json_body is not None else content,
            headers={"Content-Type": "application/json"} | dict(headers or {}),
            timeout=httpx.Timeout(max(timeout_s or 0.0, self._timeout_s), connect=5.0),
        )
        tries = 0
        while True:
            try:
                return _answer(self._http.send(request), path)
            except httpx.TransportError as error:
                problem: FrazilError = _unreachable(self.url, error)
                problem.__cause__ = error
                repeat = again or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            except Unavailable as error:
                problem = error
                repeat = error.code != "visibility_timeout"
            pause = _pause(tries, problem)
            if not repeat or time.monotonic() + pause > deadline:
                raise problem
            time.sleep(pause)
            tries += 1


def _table(name: str) -> str:
    return f"/v1/tables/{quote(name, safe='.')}"


def _pause(tries: int, problem: FrazilError) -> float:
    """Seconds until the next try: what the server asked for at least, with jitter so that clients spread."""
    asked = problem.retry_after_seconds if isinstance(problem, Unavailable) else 0.0
    grown = min(5.0, 0.1 * 2.0**tries)
    return max(asked, grown) * (1.0 + 0.25 * random.random())  # noqa: S311 (spreading, not secrecy)


def _unreachable(url: str, error: httpx.TransportError) -> Unavailable:
    return Unavailable(
        f"{url} does not answer: {error or type(error).__name__}",
        code="unreachable",
        retry_after_seconds=0.0,
        hint="is it running? `frazil status` and `frazil doctor` tell; what was sent may be sent again",
    )


_BY_STATUS: dict[int, type[FrazilError]] = {
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    422: errors.InvalidInput,
    400: errors.InvalidInput,
    429: errors.Unavailable,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


def _by_code(root: type[FrazilError]) -> Iterator[tuple[str, type[FrazilError]]]:
    yield root.code, root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _by_code(child)


_BY_CODE = dict(_by_code(FrazilError))


def _answer(response: httpx.Response, path: str) -> dict[str, Any]:
    try:
        body = json.loads(response.content) if response.content else {}
    except ValueError as error:
        if response.is_success:
            raise Unavailable(
                f"{path} did not answer with JSON", code="not_frazil", hint="is this the address of a frazil?"
            ) from error
        body = {}
    if not isinstance(body, dict):
        body = {}
    if response.is_success or (path == "/v1/health" and "status" in body):
        return body
    said = body.get("error")
    said = said if isinstance(said, dict) else {}
    kind = _BY_CODE.get(said.get("code", "")) or _BY_STATUS.get(response.status_code, FrazilError)
    words: dict[str, Any] = {
        "hint": said.get("hint", ""),
        "code": said.get("code") or kind.code,
        "details": said.get("details"),
    }
    if issubclass(kind, Unavailable):
        words["retry_after_seconds"] = _retry_after(response)
    raise kind(said.get("message") or f"HTTP {response.status_code} from {path}", **words)


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(60.0, max(0.0, float(response.headers.get("Retry-After", 0.0))))
    except ValueError:
        return 1.0


def merged(first: str, second: str) -> str:
    """The token that is reached when both are."""
    if not first or first == second:
        return second
    from frazil.events.position import Token

    return str(Token.parse(first).merge(Token.parse(second)))


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
