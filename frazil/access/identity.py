"""Identity: the caller of a request and its permissions. Everything that no grant allows is denied."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.access.grants import Grant, ReadGrant, combined, matching
from frazil.errors import Denied


class Forbidden(Denied):
    """The token is valid; it lacks a scope."""

    code = "forbidden"
    status = 403


@dataclass(frozen=True)
class Identity:
    id: str
    """The token's id. Also the key by which callers get their fair share."""
    name: str
    grants: tuple[Grant, ...]
    rate_per_second: float | None = None
    """None: the rate of the settings, or no limit for an admin."""
    burst: int | None = None

    @property
    def is_admin(self) -> bool:
        return any(grant.verb == "admin" for grant in self.grants)

    @property
    def may_sql(self) -> bool:
        return self.is_admin or any(grant.verb == "sql" for grant in self.grants)

    def may_ingest(self, table: str) -> bool:
        return self.is_admin or bool(matching(self.grants, "ingest", table))

    def read_grant(self, table: str) -> ReadGrant | None:
        """What the caller may read of the table (by its full name); None if nothing."""
        if self.is_admin:
            return ReadGrant()
        grant = combined(matching(self.grants, "read", table))
        return grant.of(self.id, table) if grant is not None and grant.masks else grant

    def knows(self, table: str) -> bool:
        """Whether the caller may see that the table exists."""
        return self.may_ingest(table) or self.read_grant(table) is not None

    def require_admin(self) -> None:
        """Raise `Forbidden`, with the same message for every request, unless the caller is an admin."""
        if not self.is_admin:
            raise Forbidden(
                "this request needs a token with the scope admin",
                hint="use the admin token, or contact the administrator of this frazil",
            )

    def require_sql(self) -> None:
        if not self.may_sql:
            raise Forbidden(
                "this request needs a token with the scope sql",
                hint="get a token with the grant sql from an administrator",
            )


ADMIN = Identity("admin", "admin.token", (Grant("admin"),))
"""The holder of the file admin.token. It is in no store, so that it works while the store cannot be reached."""
