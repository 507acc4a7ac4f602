from __future__ import annotations

from typing import Any

import pytest

from frazil.bus.memory import MemoryBus
from frazil.errors import Conflict
from frazil.events.declaration import parse_table
from frazil.lake.catalog import Lake, LakeTable, finish_declaring, load_entity
from frazil.tables import create_table

SPEC = parse_table({"name": "users", "kind": "entity", "key": ["id"], "columns": {"id": "string"}})


async def test_an_entity_that_two_declare_at_once_is_fed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """One makes the history, the other finds it and makes the base: the stream of the first is the entity's."""
    bus = MemoryBus()
    create_base = Lake.create_base

    def after_another(self: Lake, *arguments: Any) -> LakeTable:
        monkeypatch.setattr(Lake, "create_base", create_base)
        assert finish_declaring(self, SPEC) is not None
        return create_base(self, *arguments)

    monkeypatch.setattr(Lake, "create_base", after_another)
    made = await create_table(bus, lake, SPEC)
    entity = load_entity(lake, "main.users")
    assert made.uuid == entity.base.uuid
    assert await bus.names() == [entity.history.stream]


async def test_a_history_whose_base_is_taken_is_put_away(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus()
    await create_table(bus, lake, SPEC)
    entity = load_entity(lake, "main.users")
    monkeypatch.setattr("frazil.tables.create.finish_declaring", lambda *_: None)
    lake.drop(entity.history.name)  # as one that is being brought back: its base is there, its history is not yet
    with pytest.raises(Conflict):
        await create_table(bus, lake, SPEC)
    lake.undrop(entity.history.name, uuid=entity.history.uuid)
    assert load_entity(lake, "main.users").history.stream == entity.history.stream
    assert entity.history.stream in await bus.names()
