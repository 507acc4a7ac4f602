"""The two tables of an entity, kept as one whatever breaks off in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.events.declaration import parse_table
from frazil.lake.catalog import Lake, alter_entity, create_entity, drop_entity, finish_declaring, load_entity, undrop
from tests.kills import Address, address, killed_at

SPEC = parse_table({"name": "users", "kind": "entity", "key": ["id"], "columns": {"id": "long", "name": "string"}})
FED = {"stream": "s", "identity": "i"}


def act(there: Address, what: str) -> None:
    lake = there.open()
    match what:
        case "declare":
            create_entity(lake, SPEC, **FED)
        case "drop":
            drop_entity(lake, SPEC.name)
        case "undrop":
            undrop(lake, SPEC.name)
        case _:
            alter_entity(lake, SPEC.name, lambda spec: replace(spec, description="people"))


def killed(lake: Lake, what: str, point: str) -> None:
    """Do it in another process, which is killed at the point."""
    killed_at(point, act, address(lake), what)
    lake._loaded.clear()


def names(lake: Lake) -> list[str]:
    return lake.names()


def test_an_entity_is_two_tables_that_know_each_other(lake: Lake) -> None:
    made = create_entity(lake, SPEC, **FED)
    assert names(lake) == ["main.users", "main.users__history"]
    found = load_entity(lake, "main.users")
    assert found.spec == SPEC and found.unfolded_rows == 0
    assert found.base.history_uuid == made.history.uuid and found.history.token_name == "main.users"
    assert "_patch" in found.history.spec.row_schema().names and "_patch" not in found.spec.row_schema().names


def test_a_declaration_that_broke_off_is_finished_by_the_same_one(lake: Lake) -> None:
    killed(lake, "declare", "after_history_before_base")
    assert names(lake) == ["main.users__history"]
    finished = finish_declaring(lake, SPEC)
    assert finished is not None and load_entity(lake, "main.users").history.uuid == finished.history.uuid


def test_a_declaration_that_broke_off_gives_way_to_another_one(lake: Lake) -> None:
    killed(lake, "declare", "after_history_before_base")
    other = parse_table({"name": "users", "columns": {"id": "long"}})
    assert finish_declaring(lake, other) is None and names(lake) == []


@pytest.mark.parametrize("how", ["drop", "undrop"])
def test_a_drop_that_broke_off_is_finished_either_way(lake: Lake, how: str) -> None:
    made = create_entity(lake, SPEC, **FED)
    killed(lake, "drop", "after_drop_of_history")
    with pytest.raises(NotFound) as refused:
        load_entity(lake, "main.users")
    assert refused.value.code == "history_missing"
    if how == "drop":
        drop_entity(lake, "main.users")
        assert names(lake) == [] and set(lake.dropped()) == {"main.users", "main.users__history"}
    else:
        undrop(lake, "main.users")
        assert load_entity(lake, "main.users").history.uuid == made.history.uuid


def test_of_several_dropped_histories_the_right_one_comes_back(lake: Lake) -> None:
    first = create_entity(lake, SPEC, **FED)
    drop_entity(lake, "main.users")
    create_entity(lake, SPEC, **FED)
    drop_entity(lake, "main.users")
    lake.undrop("main.users", uuid=first.base.uuid)  # and no more: as after a kill
    assert undrop(lake, "main.users").uuid == first.base.uuid
    assert load_entity(lake, "main.users").history.uuid == first.history.uuid
    with pytest.raises(Conflict):
        undrop(lake, "main.users")


def test_an_undrop_that_broke_off_is_finished_by_another(lake: Lake) -> None:
    made = create_entity(lake, SPEC, **FED)
    drop_entity(lake, "main.users")
    killed(lake, "undrop", "after_undrop_of_base")
    with pytest.raises(NotFound):
        load_entity(lake, "main.users")
    undrop(lake, "main.users")
    assert load_entity(lake, "main.users").history.uuid == made.history.uuid


def test_an_alteration_that_broke_off_is_what_the_entity_says_of_itself(lake: Lake) -> None:
    create_entity(lake, SPEC, **FED)
    killed(lake, "alter", "after_alter_of_history")
    assert lake.table("main.users").spec.description == ""
    assert load_entity(lake, "main.users").spec.description == "people"
    alter_entity(lake, "main.users", lambda spec: spec)
    assert lake.table("main.users").spec.description == "people"


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ({"key": []}, "bad_key"),
        ({"key": ["id", "id"]}, "bad_key"),
        ({"key": ["tags"]}, "bad_key"),
        ({"key": ["price"]}, "bad_key"),
        ({"key": ["nothing"]}, "bad_declaration"),
        ({"key": ["id"], "name": "x" * 55}, "bad_table_name"),
        ({"key": ["id"], "kind": "other"}, "unsupported_kind"),
    ],
)
def test_declarations_that_make_no_entity(declared: dict[str, Any], code: str) -> None:
    columns = {"id": "long", "tags": "list<string>", "price": "double"}
    with pytest.raises(InvalidInput) as refused:
        parse_table({"name": "t", "kind": "entity", "columns": columns, **declared})
    assert refused.value.code == code


def test_the_columns_of_the_key_are_required(lake: Lake) -> None:
    assert SPEC.columns["id"].required and not SPEC.columns["name"].required
    assert parse_table(SPEC.declared()) == SPEC and parse_table(SPEC.history().declared()) == SPEC.history()
