"""Transport: one connection pool, calls that are repeated while that can help, and errors of `frazil.errors`."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from frazil import __version__, errors
from frazil.client.event_bodies import encode_json
from frazil.errors import FrazilError, Misconfigured, Unavailable

JsonObject = dict[str, Any]
JsonObjects = list[JsonObject]

_FINAL = ("visibility_timeout", "query_timeout", "tail_too_long")
"""Transient errors that an immediate repeat does not solve: the caller decides."""


class Transport:
    """One connection pool to one frazil; threads may share it."""

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

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, **options: Any) -> JsonObject:
        """A call that is answered with a JSON object; the options are those of `send`."""
        return _object(self.send(method, path, **options), path)

    def send_file(self, path: str, params: Mapping[str, Any], chunks: Iterator[bytes]) -> JsonObject:
        """Send a file of any size, once: its chunks cannot be read again."""
        headers = {"Content-Type": "application/octet-stream"}
        try:
            response = self._http.post(path, params=dict(params), content=chunks, headers=headers)
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error
        return _object(_succeeded(response, path), path)

    def send(
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
    ) -> httpx.Response:
        """One call, repeated while that can help.

        With `again=False` the call is repeated only when it was certainly not carried out.
        """
        deadline = time.monotonic() + self._retry_s
        request = self._http.build_request(
            method,
            path,
            params=params,
            content=encode_json(json_body) if json_body is not None else content,
            headers={"Content-Type": "application/json"} | dict(headers or {}),
            timeout=httpx.Timeout(max(timeout_s or 0.0, self._timeout_s), connect=5.0),
        )
        tries = 0
        while True:
            try:
                return _succeeded(self._http.send(request), path)
            except httpx.TransportError as error:
                problem: FrazilError = _unreachable(self.url, error)
                problem.__cause__ = error
                repeat = again or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            except Unavailable as error:
                problem = error
                repeat = error.code not in _FINAL
            pause = _pause(tries, problem)
            if not repeat or time.monotonic() + pause > deadline:
                raise problem
            time.sleep(pause)
            tries += 1


def table_path(name: str) -> str:
    return f"/v1/tables/{quote(name, safe='.')}"


def given(**fields: Any) -> JsonObject:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _pause(tries: int, problem: FrazilError) -> float:
    """Seconds until the next try: at least Retry-After, with jitter so that clients spread."""
    retry_after = problem.retry_after_seconds if isinstance(problem, Unavailable) else 0.0
    backoff = min(5.0, 0.1 * 2.0**tries)
    return max(retry_after, backoff) * (1.0 + 0.25 * random.random())  # noqa: S311 (spreading, not secrecy)


def _unreachable(url: str, error: httpx.TransportError) -> Unavailable:
    return Unavailable(
        f"{url} does not answer: {error or type(error).__name__}",
        code="unreachable",
        retry_after_seconds=0.0,
        hint="check with `frazil status` and `frazil doctor` whether it is running; sending the same again is safe",
    )


_BY_STATUS: dict[int, type[FrazilError]] = {
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.NotFound,
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


def _succeeded(response: httpx.Response, path: str) -> httpx.Response:
    """The response, or the error in it."""
    if response.is_success:
        return response
    try:
        body = json.loads(response.content)
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    if path == "/v1/health" and "status" in body:
        return response
    error = body.get("error")
    error = error if isinstance(error, dict) else {}
    kind = _BY_CODE.get(error.get("code", "")) or _BY_STATUS.get(response.status_code, FrazilError)
    fields: dict[str, Any] = {
        "hint": error.get("hint", ""),
        "code": error.get("code") or kind.code,
        "details": error.get("details"),
    }
    if issubclass(kind, Unavailable):
        fields["retry_after_seconds"] = _retry_after(response)
    raise kind(error.get("message") or f"HTTP {response.status_code} from {path}", **fields)


def _object(response: httpx.Response, path: str) -> JsonObject:
    try:
        body = json.loads(response.content) if response.content else {}
    except ValueError as error:
        raise not_frazil(path) from error
    return body if isinstance(body, dict) else {}


def not_frazil(path: str) -> Unavailable:
    return Unavailable(
        f"the answer of {path} is not one of frazil",
        code="not_frazil",
        hint="check that this is the address of a frazil",
    )


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(60.0, max(0.0, float(response.headers.get("Retry-After", 0.0))))
    except ValueError:
        return 1.0
