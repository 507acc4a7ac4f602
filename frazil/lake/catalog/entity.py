"""Entity: two tables kept as one, the history of all its events and the base they are folded into.

Events go to the history, which is a log like any other; its declaration is the one that counts, and the base follows.
The base names its history by uuid. So the states that a kill can leave differ: a history without a
base was about to be declared, a base without its history was about to be dropped or brought back. Doing the same again
finishes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from frazil.crash import crash_point
from frazil.errors import Conflict, NotFound
from frazil.events.declaration import TableSpec, history_of
from frazil.lake.catalog.lake import Lake
from frazil.lake.catalog.schema import FANOUT, TABLE_PROPERTIES
from frazil.lake.catalog.table import LakeTable


@dataclass(frozen=True)
class Entity:
    """Both tables at one moment."""

    base: LakeTable
    history: LakeTable

    @property
    def spec(self) -> TableSpec:
        """The entity as its owner knows it, with the columns that its events have by now."""
        base = self.base.spec
        return replace(self.history.spec, name=base.name, kind=base.kind, partition=base.partition)

    @property
    def unfolded_rows(self) -> int:
        """How many committed events the base does not hold yet."""
        return max(0, self.history.rows - self.base.folded_rows)


def pair_entity(base: LakeTable, history: LakeTable | None) -> Entity:
    """The entity of these two tables. Raises if they do not belong together."""
    short = base.spec.short_name
    if history is None or history.uuid != base.history_uuid:
        raise NotFound(
            f"the history of {short!r} is missing: a drop or undrop of the entity was interrupted",
            code="history_missing",
            hint=f"`frazil tables undrop {short}` brings it back, `frazil tables drop {short}` drops the rest",
        )
    return Entity(base, history)


def load_entity(lake: Lake, name: str) -> Entity:
    """The entity as it is now. The base is loaded first: whatever is folded into it, the history has it."""
    base = lake.table(name)
    return pair_entity(base, find_table(lake, history_of(name)))


def find_table(lake: Lake, name: str) -> LakeTable | None:
    """The table of this name; None if there is none."""
    try:
        return lake.table(name)
    except NotFound as error:
        if error.code == "table_not_found":
            return None
        raise


def create_entity(lake: Lake, spec: TableSpec, *, stream: str, identity: str) -> Entity:
    """Make both tables, the history first: nobody can write to an entity that has no base yet."""
    return complete_entity(lake, spec, lake.create(spec.history(), stream=stream, identity=identity))


def complete_entity(lake: Lake, spec: TableSpec, history: LakeTable) -> Entity:
    """Create the base of a new history. Another process that declares the same entity may create it first. A history
    whose base cannot be created is dropped, so that its name is free."""
    crash_point("after_history_before_base")
    try:
        return Entity(lake.create_base(spec, history), history)
    except Conflict:
        base = find_table(lake, spec.name)
        if base is not None and base.history_uuid == history.uuid:
            return Entity(base, history)
        with contextlib.suppress(NotFound):
            lake.drop(history.name)
        raise


def finish_declaring(lake: Lake, spec: TableSpec) -> Entity | None:
    """Take up a declaration of this name that broke off, if it was the same one; another is put away. For the former
    case the entity, else None. To be called when there is no table of this name."""
    history = find_table(lake, history_of(spec.name))
    if history is None or history.spec.kind != "history":
        return None
    if spec.kind != "entity" or history.spec != spec.history():
        lake.drop(history.name)
        return None
    return complete_entity(lake, spec, history)


def alter_entity(lake: Lake, name: str, change: Callable[[TableSpec], TableSpec]) -> Entity:
    """Change the declaration. The history's counts, so that a kill in between leaves only work for the next fold."""
    entity = load_entity(lake, name)
    base = entity.base.spec

    def changed(history: TableSpec) -> TableSpec:
        return change(replace(history, name=base.name, kind=base.kind, partition=base.partition)).history()

    history = lake.alter(entity.history.name, changed)
    crash_point("after_alter_of_history")
    return Entity(align_base(lake, Entity(entity.base, history)), history)


def align_base(lake: Lake, entity: Entity) -> LakeTable:
    """The base with the declaration of its history, and written by one partition after the other."""
    base = entity.base
    if base.iceberg.properties.get(FANOUT) == "true":  # a base of an earlier version
        base = lake.set_properties(base.name, {FANOUT: TABLE_PROPERTIES[FANOUT]})
    if base.spec == entity.spec:
        return base
    return lake.alter(base.name, lambda current: replace(entity.spec, partition=current.partition))


def drop_entity(lake: Lake, name: str) -> None:
    """Take both out of sight, the history first; dropping again finishes what broke off."""
    base = lake.table(name)
    history = find_table(lake, history_of(name))
    if history is not None and history.uuid == base.history_uuid:
        lake.drop(history.name)
        crash_point("after_drop_of_history")
    lake.drop(name)


def undrop(lake: Lake, name: str) -> LakeTable:
    """Bring back the table of this name that was dropped last; an entity base first, so that it can be done again."""
    halved = find_table(lake, name)
    table = halved if halved is not None and halved.spec.kind == "entity" else lake.undrop(name)
    if table.spec.kind == "entity":
        crash_point("after_undrop_of_base")
        _undrop_history(lake, table)
    return table


def _undrop_history(lake: Lake, base: LakeTable) -> None:
    name = history_of(base.name)
    if find_table(lake, name) is not None:
        raise Conflict(
            f"a table named {base.spec.short_name!r} exists", code="table_exists", hint="drop that one first"
        )
    lake.undrop(name, uuid=base.history_uuid)
