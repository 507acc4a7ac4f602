"""Master salt of masked columns: one for all gateways, so that each of them makes the same hash of a value.

The pool of query workers makes the salt of each domain from it (`frazil.access.grants`). Workers get only those salts.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from frazil.errors import Conflict

if TYPE_CHECKING:
    from frazil.registry import Registry

_KEY = "access/mask-salt"


def shared_mask_salt(registry: Registry) -> str:
    """The master salt, created by the first caller. It never changes and is never shown."""
    while (document := registry.get(_KEY)) is None:
        with contextlib.suppress(Conflict):  # then another gateway was first
            registry.put(_KEY, secrets.token_hex(32).encode(), expected_version=None)
    return document.body.decode()
