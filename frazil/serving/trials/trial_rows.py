"""A trial as it is told: in reports, over HTTP and to charts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

_AS_JSON = ("config", "machine", "engines")


def told_trial(row: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that there are, and what is JSON in the journal as what it says."""
    told: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        if name in _AS_JSON:
            value = msgspec.json.decode(value)
        elif isinstance(value, datetime):
            value = value.isoformat()
        told[name] = value
    return told
