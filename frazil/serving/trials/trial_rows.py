"""Trial rows as JSON: in reports, over HTTP and in charts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

_AS_JSON = ("config", "machine", "engines")


def trial_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that there are; columns that hold JSON are decoded."""
    fields: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        if name in _AS_JSON:
            value = msgspec.json.decode(value)
        elif isinstance(value, datetime):
            value = value.isoformat()
        fields[name] = value
    return fields
