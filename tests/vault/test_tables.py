"""The tables through a client: declared once, read in pages, and asked in SQL that the statement wall lets pass."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from frazil.client import Client
from frazil.errors import Conflict, InvalidInput
from frazil.events.declaration import parse_type
from frazil.vault import ClientTables, VaultSync, tables
from tests.vault.duck_client import DuckClient
from tests.vault.vaults import write

STATUS = {"status": parse_type("string")}


@pytest.fixture
def client(tmp_path: Path) -> DuckClient:
    return DuckClient(tmp_path)


def opened(client: DuckClient, **words: str) -> ClientTables:
    return ClientTables(cast(Client, client), **words)


def test_pages_hold_together(client: DuckClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PAGE_ROWS", 3)
    monkeypatch.setattr(tables, "_PAGE_BYTES", 2500)
    vault = tmp_path / "vault"
    write(vault, {f"n{number}.md": "[[x]] [[y]] 'quoted' \n" for number in range(8)} | {"z'.md": "---\na: 1\n---\n"})
    ours = opened(client)
    assert ours.declare({}) == {}
    assert VaultSync(vault, "v", ours, combine_tokens=ours.combined).run().new == 9
    assert ours.versions("notes", "v") == client.log.versions("notes", "v")
    assert ours.versions("links", "v") == client.log.versions("links", "v")
    assert VaultSync(vault, "v", ours).run().published == 0
    assert [row["path"] for row in ours.rows("v")] == [row["path"] for row in client.log.rows("notes", "v")]
    for number in range(5):
        (vault / f"n{number}.md").unlink()
    assert VaultSync(vault, "v", ours).run().links_deleted == 10
    assert ours.graves("links", "v") == client.log.graves("links", "v") and len(ours.graves("links", "v")) == 10
    write(vault, {"n1.md": "[[x]] [[y]] 'quoted' \n"})
    assert VaultSync(vault, "v", ours).run().links_published == 2
    assert client.log.repeated == 0 and ours.vaults() == ["v"]


def test_columns_of_front_matter_are_remembered_by_the_table(client: DuckClient) -> None:
    assert opened(client).declare(STATUS) == STATUS
    assert opened(client).declare({}) == STATUS
    more = {"due": parse_type("date")}
    assert opened(client).declare(more) == {**STATUS, **more}
    assert client.declared["notes"]["columns"]["due"] == "date" and opened(client).further() == {**STATUS, **more}
    assert client.declared["note_links"]["kind"] == "entity" and "due" not in client.declared["note_links"]["columns"]


def test_a_dry_run_declares_nothing(client: DuckClient, tmp_path: Path) -> None:
    ours = opened(client)
    assert ours.declare(STATUS, dry_run=True) == STATUS
    write(tmp_path / "v", {"a.md": ""})
    assert VaultSync(tmp_path / "v", "v", ours).run(dry_run=True).new == 1
    assert client.declared == {}


def test_a_table_of_something_else_is_left_alone(client: DuckClient) -> None:
    client.create_table("notes", {"a": "long"}, kind="log")
    with pytest.raises(Conflict, match="not one of a vault"):
        opened(client).declare({})


def test_names_of_tables_are_names() -> None:
    with pytest.raises(InvalidInput):
        opened(DuckClient(Path()), notes="notes; DROP")
