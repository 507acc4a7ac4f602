"""The salt of masked columns: one for all gateways, so that a value has the same hash wherever it is asked for."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from frazil.errors import Conflict

if TYPE_CHECKING:
    from frazil.lake import Registry

_KEY = "access/mask-salt"


def mask_salt(registry: Registry) -> str:
    """The salt, made by whoever asks first. It never changes, and nobody is told it."""
    while (document := registry.get(_KEY)) is None:
        with contextlib.suppress(Conflict):  # then another gateway was first
            registry.put(_KEY, secrets.token_hex(32).encode(), expected_version=None)
    return document.body.decode()
