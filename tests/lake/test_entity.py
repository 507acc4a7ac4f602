"""The two tables of an entity, kept as one whatever breaks off in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Conflict, InvalidInput, NotFound
from frazil.events.table import parse_table
from frazil.lake import (
    Lake,
    alter_entity,
    create_entity,
    drop_entity,
    finish_declaring,
    load_entity,
    open_lake,
    undrop,
)
from frazil.storage import Warehouse

ROOT = Path(__file__).parent.parent.parent
SPEC = parse_table({"name": "users", "kind": "entity", "key": ["id"], "columns": {"id": "long", "name": "string"}})
FED = {"stream": "s", "identity": "i"}

PROBE = """
import sys
from dataclasses import replace
from frazil.lake import Lake, open_lake, create_entity, drop_entity, alter_entity, undrop
from frazil.storage import Warehouse
from tests.lake.test_entity import SPEC, FED
lake = open_lake(sys.argv[1], Warehouse(sys.argv[2]))
if sys.argv[3] == "declare":
    create_entity(lake, SPEC, **FED)
elif sys.argv[3] == "drop":
    drop_entity(lake, SPEC.name)
elif sys.argv[3] == "undrop":
    undrop(lake, SPEC.name)
else:
    alter_entity(lake, SPEC.name, lambda spec: replace(spec, description="people"))
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lake]:
    """A lake that the process to be killed can open too."""
    opened = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    yield opened
    opened.close()


def killed(tmp_path: Path, what: str, point: str) -> None:
    """Do it in another process, which is killed at the point."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", what],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FRAZIL_CRASH_AT": point},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert probe.returncode == -signal.SIGKILL, probe.stderr[-2000:]


def names(lake: Lake) -> list[str]:
    return lake.names()


def test_an_entity_is_two_tables_that_know_each_other(lake: Lake) -> None:
    made = create_entity(lake, SPEC, **FED)
    assert names(lake) == ["main.users", "main.users__history"]
    found = load_entity(lake, "main.users")
    assert found.spec == SPEC and found.unfolded_rows == 0
    assert found.base.history_uuid == made.history.uuid and found.history.token_name == "main.users"
    assert "_patch" in found.history.spec.row_schema().names and "_patch" not in found.spec.row_schema().names


def test_a_declaration_that_broke_off_is_finished_by_the_same_one(here: Lake, tmp_path: Path) -> None:
    killed(tmp_path, "declare", "after_history_before_base")
    assert names(here) == ["main.users__history"]
    finished = finish_declaring(here, SPEC)
    assert finished is not None and load_entity(here, "main.users").history.uuid == finished.history.uuid


def test_a_declaration_that_broke_off_gives_way_to_another_one(here: Lake, tmp_path: Path) -> None:
    killed(tmp_path, "declare", "after_history_before_base")
    other = parse_table({"name": "users", "columns": {"id": "long"}})
    assert finish_declaring(here, other) is None and names(here) == []


@pytest.mark.parametrize("how", ["drop", "undrop"])
def test_a_drop_that_broke_off_is_finished_either_way(here: Lake, tmp_path: Path, how: str) -> None:
    made = create_entity(here, SPEC, **FED)
    killed(tmp_path, "drop", "after_drop_of_history")
    with pytest.raises(NotFound) as refused:
        load_entity(here, "main.users")
    assert refused.value.code == "history_missing"
    if how == "drop":
        drop_entity(here, "main.users")
        assert names(here) == [] and set(here.dropped()) == {"main.users", "main.users__history"}
    else:
        undrop(here, "main.users")
        assert load_entity(here, "main.users").history.uuid == made.history.uuid


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


def test_an_undrop_that_broke_off_is_finished_by_another(here: Lake, tmp_path: Path) -> None:
    made = create_entity(here, SPEC, **FED)
    drop_entity(here, "main.users")
    killed(tmp_path, "undrop", "after_undrop_of_base")
    with pytest.raises(NotFound):
        load_entity(here, "main.users")
    undrop(here, "main.users")
    assert load_entity(here, "main.users").history.uuid == made.history.uuid


def test_an_alteration_that_broke_off_is_what_the_entity_says_of_itself(here: Lake, tmp_path: Path) -> None:
    create_entity(here, SPEC, **FED)
    killed(tmp_path, "alter", "after_alter_of_history")
    assert here.table("main.users").spec.description == ""
    assert load_entity(here, "main.users").spec.description == "people"
    alter_entity(here, "main.users", lambda spec: spec)
    assert here.table("main.users").spec.description == "people"


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
