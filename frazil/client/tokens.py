"""Access tokens, for admins: `client.tokens.create("reports", ["sql", "read:orders"])`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from frazil.client.transport import JsonObject, JsonObjects, Transport, given


class TokensClient:
    """The access tokens of one frazil. The answers are those of POST /v1/tokens."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        grants: Sequence[str | Mapping[str, Any]],
        *,
        expires_in_s: float | None = None,
        expires_at: datetime | str | None = None,
        rate_per_second: float | None = None,
        burst: int | None = None,
    ) -> JsonObject:
        """A new token. Its secret is in `token` and cannot be read again.

        If the answer is lost, the call is not repeated: it may have created a token. List the tokens and revoke it.
        """
        fields = given(
            expires_in_s=expires_in_s,
            expires_at=expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at,
            rate_per_second=rate_per_second,
            burst=burst,
        )
        body = {"name": name, "grants": list(grants), **fields}
        return self._transport.call("POST", "/v1/tokens", json_body=body, again=False)

    def show(self, token_id: str) -> JsonObject:
        return self._transport.call("GET", _path(token_id))

    def revoke(self, token_id: str) -> JsonObject:
        """End the token permanently; every gateway refuses it within 5 seconds. Twice is the same as once."""
        return self._transport.call("DELETE", _path(token_id))

    def rotate(self, token_id: str, *, grace_s: float = 0.0) -> JsonObject:
        """A new secret, in `token`, for the same token; its old secrets work `grace_s` longer."""
        return self._transport.call("POST", f"{_path(token_id)}/rotate", json_body={"grace_s": grace_s}, again=False)

    def list(self) -> JsonObjects:
        """All tokens, also expired and revoked ones, the newest first."""
        found: JsonObjects = self._transport.call("GET", "/v1/tokens")["tokens"]
        return found


def _path(token_id: str) -> str:
    """The path of a token, by its id or its prefix. A whole token is cut to its id: a secret must not be in a path."""
    return f"/v1/tokens/{quote(token_id.removeprefix('frz_').partition('_')[0], safe='')}"
