"""Entities as a dictionary: the rule of their events, said once more in plain Python; and a fold that goes by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from frazil.lake.catalog import FOLDED_ROWS, WATERMARK, Entity, Lake, load_entity
from frazil.lake.catalog.table import WATERMARK_SEQUENCE

Row = dict[str, Any]


@dataclass
class Model:
    """The state of each key: its row, by the events taken so far in the order of the stream."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """An event as a row of the history."""
        key = tuple(event[name] for name in self.key)
        before = self.rows.get(key)
        if before is not None and event["_ts"] < before["_ts"]:
            return
        system = {name: value for name, value in event.items() if name.startswith("_") and name != "_patch"}
        values: Row = dict.fromkeys(self.columns)
        if event["_op"] == "upsert":
            values = {name: event[name] for name in self.columns}
        elif event["_op"] == "patch":
            values |= {name: before[name] for name in self.columns if before is not None}
            values |= {name: event[name] for name in event["_patch"]}
        self.rows[key] = {**system, **dict(zip(self.key, key, strict=True)), **values}

    def there(self) -> dict[tuple[Any, ...], Row]:
        return {key: row for key, row in self.rows.items() if row["_op"] != "delete"}


def replayed(entity: Entity, events: Iterable[Mapping[str, Any]]) -> Model:
    spec = entity.spec
    model = Model(spec.key, tuple(name for name in spec.columns if name not in spec.key))
    for event in events:
        model.take(event)
    return model


def history_rows(lake: Lake, name: str) -> list[Row]:
    """All events of an entity, as PyIceberg reads them, in the order of the stream."""
    found: list[Row] = lake.catalog.load_table(f"{name}__history").scan().to_arrow().sort_by("_seq").to_pylist()
    return found


def fold(lake: Lake, name: str, *, below: int | None = None) -> int:
    """What a folder does, in small and without Spark: all events below a position become the base."""
    entity = load_entity(lake, name)
    watermark = entity.history.watermark if below is None else below
    events = [event for event in history_rows(lake, name) if event["_seq"] < watermark]
    rows = list(replayed(entity, events).rows.values())
    marks = {WATERMARK: str(watermark), FOLDED_ROWS: str(len(events))}
    base = lake.catalog.load_table(name)
    with base.transaction() as transaction:
        transaction.overwrite(pa.Table.from_pylist(rows, base.schema().as_arrow()), snapshot_properties=marks)
        marked = transaction.table_metadata.current_snapshot()
        assert marked is not None
        transaction.set_properties({WATERMARK: str(watermark), WATERMARK_SEQUENCE: str(marked.sequence_number)})
    return marked.snapshot_id
