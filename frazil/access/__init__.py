"""Access: who may do what. Tokens and their grants, how often they may call, and the log of what they did.

The names below are imported when they are first used: the settings of this room are read by every command, which must
not wait for what only a gateway needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.access.audit import AuditEntry, AuditLog
    from frazil.access.door import Access
    from frazil.access.grants import Grant, ReadGrant, parse_grants
    from frazil.access.identity import ADMIN, Forbidden, Identity
    from frazil.access.quotas import Place, QuotaExceeded, Quotas
    from frazil.access.rates import RateLimited
    from frazil.access.settings import AccessSettings
    from frazil.access.tokens import TokenRecord, TokenStore

_HOMES = {
    "ADMIN": "identity",
    "Access": "door",
    "AccessSettings": "settings",
    "AuditEntry": "audit",
    "AuditLog": "audit",
    "Forbidden": "identity",
    "Grant": "grants",
    "Identity": "identity",
    "Place": "quotas",
    "QuotaExceeded": "quotas",
    "Quotas": "quotas",
    "RateLimited": "rates",
    "ReadGrant": "grants",
    "TokenRecord": "tokens",
    "TokenStore": "tokens",
    "parse_grants": "grants",
}

__all__ = [
    "ADMIN",
    "Access",
    "AccessSettings",
    "AuditEntry",
    "AuditLog",
    "Forbidden",
    "Grant",
    "Identity",
    "Place",
    "QuotaExceeded",
    "Quotas",
    "RateLimited",
    "ReadGrant",
    "TokenRecord",
    "TokenStore",
    "parse_grants",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
