"""Raw event: a row of a table as the event that it came from, in JSON that can be published again.

The decoding of what is written here gives the same values: decimals and binaries are texts, a float that is not finite
is its name, JSON columns are what they were.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from frazil.events.declaration.column_types import ColumnType
from frazil.events.declaration.table_spec import EXTRA, PATCH, TableSpec
from frazil.events.decoding.envelope import PATCH_OP


def raw_data(row: Mapping[str, Any], spec: TableSpec) -> str:
    """The `data` of the event behind this row, as JSON text. Fields that are null are left out, save those that a patch
    has set to null."""
    given = set(row.get(PATCH) or ()) if row["_op"] == PATCH_OP else set()
    data: dict[str, Any] = {}
    for name, column in spec.columns.items():
        value = row.get(name)
        if value is not None or name in given:
            data[name] = _json(value, column.type)
    if spec.unknown_fields == "keep" and row.get(EXTRA):
        data |= msgspec.json.decode(row[EXTRA], type=dict[str, msgspec.Raw])
    return msgspec.json.encode(data).decode()


def event_as_sent(letter: Mapping[str, Any]) -> bytes:
    """The event of a dead letter as one line of NDJSON."""
    event = {name: letter[name] for name in ("id", "op", "actor", "source", "workspace") if letter[name] is not None}
    return msgspec.json.encode({**event, "ts": _moment(letter["ts"]), "data": msgspec.Raw(letter["data"].encode())})


def _json(value: Any, of_type: ColumnType) -> Any:
    if value is None:
        return None
    if of_type.kind == "json":
        return msgspec.Raw(value.encode())
    if of_type.kind == "list":
        return [_json(item, of_type.children[0][1]) for item in value]
    if of_type.kind == "struct":
        return {name: _json(value.get(name), child) for name, child in of_type.children}
    if of_type.kind == "map":
        key, item = (child for _, child in of_type.children)
        return {str(_json(name, key)): _json(held, item) for name, held in value}
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, date):
        return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    return value


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
