"""S3 requests: signed, retried where that can help, with errors translated to those of frazil."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit
from xml.etree import ElementTree

import httpx

from frazil.errors import FrazilError, Misconfigured, NotFound, Unavailable
from frazil.storage.sigv4 import EMPTY, Signer, escaped, query_text
from frazil.storage.warehouse import Warehouse

_TRIES = 4
_FIRST_PAUSE_SECONDS = 0.1
_TIMEOUT = httpx.Timeout(20.0, connect=5.0, pool=60.0)
_PASSES = {409, 429, 500, 502, 503, 504}
_FULL = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "EntityTooLarge"}


class S3Link:
    """Requests about one bucket. Several threads may use it at once."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.bucket, _, self.prefix = warehouse.url.removeprefix("s3://").rstrip("/").partition("/")
        endpoint = urlsplit(warehouse.endpoint or f"https://s3.{warehouse.region}.amazonaws.com")
        self._host = endpoint.netloc if warehouse.path_style else f"{self.bucket}.{endpoint.netloc}"
        self._root = f"/{self.bucket}" if warehouse.path_style else ""
        self._origin = f"{endpoint.scheme}://{self._host}"
        self._signer = Signer(warehouse.access_key_id, warehouse.secret_access_key, warehouse.region)
        # Settings of the environment (proxies, .netrc) do not apply to the object store of the warehouse.
        self._http = httpx.Client(timeout=_TIMEOUT, trust_env=False, follow_redirects=False)

    def ask(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        accept: frozenset[int] = frozenset(),
    ) -> httpx.Response:
        """The answer, read to its end, if its status is 2xx or among `accept`. An empty key asks the bucket itself.

        Every request that frazil sends may be repeated, so a transient failure is retried.
        """
        path = escaped(f"{self._root}/{key}")
        question = query_text(query or {})
        url = httpx.URL(self._origin).copy_with(raw_path=f"{path}{'?' if question else ''}{question}".encode())
        digest = hashlib.sha256(content).hexdigest() if content else EMPTY
        failure: FrazilError | None = None
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_FIRST_PAUSE_SECONDS * 4 ** (attempt - 1))
            signed = self._signer.headers(
                method, path, query or {}, {"host": self._host, **(headers or {})}, digest, datetime.now(UTC)
            )
            try:
                answer = self._http.request(method, url, headers=signed, content=content or None)
            except httpx.HTTPError as error:
                failure = Unavailable(f"the object store does not respond: {error!r}", code="storage_unavailable")
                continue
            if answer.is_success or answer.status_code in accept:
                return answer
            failure = _refusal(answer, f"{method} s3://{self.bucket}/{key}")
            if answer.status_code not in _PASSES:
                break
        assert failure is not None
        raise failure


def parsed(answer: httpx.Response) -> ElementTree.Element:
    """The XML of an answer, its names without their namespace (of which each store has its own)."""
    try:
        root = ElementTree.fromstring(answer.content)  # noqa: S314 - from the store that is trusted with the rows
    except ElementTree.ParseError as error:
        raise Unavailable("the object store sent a response that is not XML", code="storage_unavailable") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _refusal(answer: httpx.Response, request: str) -> FrazilError:
    code = _code_of(answer)
    if answer.status_code == 404:
        return NotFound(f"{request}: the object does not exist", code="object_missing")
    if code in _FULL or answer.status_code == 507:
        return Unavailable(
            f"{request}: the object store is full ({code})", code="disk_full", hint="free space in the bucket"
        )
    message = f"{request}: the object store returned {answer.status_code} {code}".rstrip()
    if answer.status_code in (401, 403):
        return Misconfigured(
            message,
            code="storage_denied",
            hint="allow the key of the warehouse to read, write, list, delete and tag objects of its bucket",
        )
    return Unavailable(message, code="storage_unavailable")


def _code_of(answer: httpx.Response) -> str:
    try:
        return parsed(answer).findtext("Code") or ""
    except FrazilError:
        return ""
