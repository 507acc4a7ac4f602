"""Signatures of S3 requests (AWS Signature Version 4): the request as one text, hashed with a key derived from ours."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Signer:
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    region: str
    service: str = "s3"

    def headers(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        content_sha256: str,
        at: datetime,
    ) -> dict[str, str]:
        """All headers to send: the given ones, which must name the host, and the signature of this one request.

        `path` is as it is sent, that is `escaped`.
        """
        stamp = at.strftime("%Y%m%dT%H%M%SZ")
        sent = {name.lower(): value.strip() for name, value in headers.items()}
        sent |= {"x-amz-date": stamp, "x-amz-content-sha256": content_sha256}
        names = ";".join(sorted(sent))
        lines = "".join(f"{name}:{sent[name]}\n" for name in sorted(sent))
        request = "\n".join([method, path, query_text(query), lines, names, content_sha256])
        scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
        signature = hmac.new(self._key(stamp[:8]), text.encode(), hashlib.sha256).hexdigest()
        credential = f"AWS4-HMAC-SHA256 Credential={self.access_key_id}/{scope}"
        return sent | {"authorization": f"{credential}, SignedHeaders={names}, Signature={signature}"}

    def _key(self, day: str) -> bytes:
        key = f"AWS4{self.secret_access_key}".encode()
        for word in (day, self.region, self.service, "aws4_request"):
            key = hmac.digest(key, word.encode(), "sha256")
        return key


def escaped(path: str) -> str:
    return quote(path, safe="/-_.~")


def query_text(query: Mapping[str, str]) -> str:
    """The query as it is sent and signed: both sides escaped, sorted by name."""
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
