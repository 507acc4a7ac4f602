"""Declarations and alterations of tables: `declarations.jsonl` and `alterations.jsonl` record what is accepted, and the
status and code of what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import pytest

from frazil.errors import FrazilError, InvalidInput
from frazil.events.declaration import TableSpec, check_declarable, parse_table
from frazil.requests import AlterTableRequest, CreateTableRequest, decode_request
from frazil.storage import Journal
from frazil.tables import TableDirectory, alter_table

TABLE = {"name": "t", "columns": {"a": "long", "s": "string", "v": "list<float>", "t": "timestamp"}}
ALTERED = {
    "name": "t",
    "columns": {"a": "int", "s": "string", "v": "list<float>"},
    "description": "old",
    "owner": "shop",
    "tags": ["x"],
    "text": ["s"],
    "retention_years": 2.0,
    "freshness_target_seconds": 5.0,
}


def _recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text().splitlines()]


def _spec(body: Any) -> TableSpec:
    spec = decode_request(body, CreateTableRequest).spec()
    check_declarable(spec)
    return spec


def test_declarations_are_as_recorded() -> None:
    recorded = _recorded("declarations.jsonl")
    assert len(recorded) > 1000
    plain = _spec(TABLE).declared()
    for case in recorded:
        body = {**TABLE, **case["with"]} if "with" in case else case["body"]
        if "refused" in case:
            with pytest.raises(InvalidInput) as refused:
                _spec(body)
            assert [refused.value.status, refused.value.code] == case["refused"], body
            continue
        spec = _spec(body)
        assert spec.declared() == {**plain, **case["declares"]}, body
        assert parse_table(spec.declared()) == spec, body


@dataclass
class _Table:
    spec: TableSpec

    @property
    def metadata_location(self) -> str:
        return repr(self.spec)


class _Directory:
    """One table in memory."""

    def __init__(self) -> None:
        self.spec = parse_table(ALTERED)

    async def table(self, name: str) -> _Table:
        return _Table(self.spec)

    def spec_of(self, table: _Table) -> TableSpec:
        return table.spec

    async def alter(self, name: str, change: Any) -> _Table:
        self.spec = change(self.spec)
        return _Table(self.spec)


async def test_alterations_are_as_recorded(tmp_path: Path) -> None:
    recorded = _recorded("alterations.jsonl")
    assert len(recorded) > 200
    before = parse_table(ALTERED).declared()
    for case in recorded:
        directory = _Directory()
        if "refused" in case:
            with pytest.raises(FrazilError) as refused:
                await _alter(directory, case["body"], tmp_path)
            assert [refused.value.status, refused.value.code] == case["refused"], case
            continue
        await _alter(directory, case["body"], tmp_path)
        after = directory.spec.declared()
        assert {name: value for name, value in after.items() if value != before[name]} == case["changes"], case


async def _alter(directory: _Directory, body: Any, folder: Path) -> None:
    changes = decode_request(body, AlterTableRequest).changes()
    await alter_table("main.t", changes, directory=cast(TableDirectory, directory), journal=Journal(folder))


def test_a_declaration_has_the_fields_of_a_spec() -> None:
    assert set(CreateTableRequest.__struct_fields__) == {field.name for field in fields(TableSpec)}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"colums": {}}, "did you mean 'columns'?"),
        ({"columns": {"a": {"type": "string", "requird": True}}}, "did you mean 'required'?"),
        ({"columns": {"a": {"type": "long", "checks": {"rang": {"min": 0}}}}}, "did you mean 'range'?"),
        ({"text": ["s"], "search": {"modle": "m"}}, "did you mean 'model'?"),
        ({"text": ["s"], "search": {"chunk": {"sice": 800}}}, "did you mean 'size'?"),
    ],
)
def test_a_typo_gets_the_right_name(given: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        _spec({**TABLE, **given})
    assert refused.value.hint == part


def test_an_error_names_the_column() -> None:
    with pytest.raises(InvalidInput, match="column 'b': its checks: `not_null` is true or false"):
        _spec({"name": "t", "columns": {"a": "long", "b": {"type": "long", "checks": {"not_null": 1}}}})


@pytest.mark.parametrize("field", ["description", "owner"])
def test_long_texts_are_refused(field: str) -> None:
    assert _spec({**TABLE, field: "x" * 10_000})
    with pytest.raises(InvalidInput, match="10,000"):
        _spec({**TABLE, field: "x" * 10_001})
