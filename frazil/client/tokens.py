"""Tokens over HTTP, for admins: `Tokens(client).create("reports", ["sql", "read:orders"])`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from frazil.client.transport import Transport


class Tokens:
    """The tokens of one frazil. What comes back is described at POST /v1/tokens."""

    def __init__(self, client: Transport) -> None:
        self._client = client

    def create(
        self,
        name: str,
        grants: Sequence[str | Mapping[str, Any]],
        *,
        expires_in_s: float | None = None,
        expires_at: datetime | str | None = None,
        rate_per_second: float | None = None,
        burst: int | None = None,
    ) -> dict[str, Any]:
        """A new token; its secret is in `token`, and cannot be had again.

        A call whose answer is lost is not repeated: it may have made a token that nobody holds. List and revoke it.
        """
        words = {
            "expires_in_s": expires_in_s,
            "expires_at": expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at,
            "rate_per_second": rate_per_second,
            "burst": burst,
        }
        given = {word: value for word, value in words.items() if value is not None}
        return self._client._call(
            "POST", "/v1/tokens", json_body={"name": name, "grants": list(grants), **given}, again=False
        )

    def list(self) -> list[dict[str, Any]]:
        """All tokens, also expired and revoked ones, the newest first."""
        found: list[dict[str, Any]] = self._client._call("GET", "/v1/tokens")["tokens"]
        return found

    def show(self, token_id: str) -> dict[str, Any]:
        return self._client._call("GET", _path(token_id))

    def revoke(self, token_id: str) -> dict[str, Any]:
        """End the token for good; every gateway refuses it within 5 seconds. Doing it twice is the same as once."""
        return self._client._call("DELETE", _path(token_id))

    def rotate(self, token_id: str, *, grace_s: float = 0.0) -> dict[str, Any]:
        """A new secret, in `token`, for the same token; those it has work `grace_s` longer."""
        return self._client._call("POST", f"{_path(token_id)}/rotate", json_body={"grace_s": grace_s}, again=False)


def _path(token_id: str) -> str:
    """The path of a token, by its id or its prefix. A whole token is cut to its id: a secret has no place in a path."""
    return f"/v1/tokens/{quote(token_id.removeprefix('frz_').partition('_')[0], safe='')}"
