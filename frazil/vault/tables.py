"""Tables of a vault, through the client: declared, read live, published to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frazil.client import Answer, Client, merge_tokens
from frazil.errors import Conflict, FrazilError, NotFound
from frazil.events.declaration import ColumnType, table_name
from frazil.vault.columns import LINK_COLUMNS, LINKS_KEY, NOTE_COLUMNS, NOTES_KEY, further_columns
from frazil.vault.note_changes import Key
from frazil.vault.sync import Which

PAGE_ROWS = 100_000
QUERY_SECONDS = 60.0
_PAGE_BYTES = 16 << 20
_KEYS = {"notes": NOTES_KEY, "links": LINKS_KEY}
_COLUMNS = {"notes": NOTE_COLUMNS, "links": LINK_COLUMNS}
_DESCRIPTIONS = {
    "notes": "Notes of Markdown vaults, one row a file",
    "links": "Links of the notes of Markdown vaults, one row a link",
}


class ClientTables:
    """`VaultTables` of one frazil."""

    def __init__(self, client: Client, *, notes: str = "notes", links: str = "note_links") -> None:
        self._client = client
        self._names: Mapping[Which, str] = {"notes": table_name(notes), "links": table_name(links)}
        self._missing: set[Which] = set()

    @staticmethod
    def combined(first: str, second: str) -> str:
        return merge_tokens(first, second)

    def declare(self, further: Mapping[str, ColumnType], *, dry_run: bool = False) -> dict[str, ColumnType]:
        """Both tables as a vault needs them, with these columns for front matter added.

        Returns all columns that front matter fills, those of earlier runs included. Killed in between, it is finished
        by calling it again. A dry run declares nothing, and takes a missing table for an empty one.
        """
        filled = dict(further)
        for which, name in self._names.items():
            added = further if which == "notes" else {}
            try:
                found = self._client.table(name)
            except NotFound:
                if dry_run:
                    self._missing.add(which)
                else:
                    self._create(which, name, added)
                continue
            self._check(which, name, found)
            there = further_columns(found["columns"])
            new = {column: str(kind) for column, kind in added.items() if column not in there}
            if new and not dry_run:
                self._client.alter_table(name, add_columns=new)
            if which == "notes":
                filled = {**further, **there}
        return filled

    def _create(self, which: Which, name: str, added: Mapping[str, ColumnType]) -> None:
        self._client.create_table(
            name,
            {**_COLUMNS[which], **{column: str(kind) for column, kind in added.items()}},
            kind="entity",
            key=list(_KEYS[which]),
            description=_DESCRIPTIONS[which],
        )

    def _check(self, which: Which, name: str, found: Mapping[str, Any]) -> None:
        missing = [column for column in _COLUMNS[which] if column not in found["columns"]]
        if found.get("kind") != "entity" or tuple(found.get("key") or ()) != _KEYS[which] or missing:
            raise Conflict(
                f"the table {name} is there, and it is not one of a vault's {which}",
                code="not_a_vault",
                hint=f"name another one with --{which}",
                details={"missing_columns": missing, "key": list(_KEYS[which])},
            )

    def versions(self, which: Which, vault: str) -> Mapping[Key, str]:
        if which in self._missing:
            return {}
        text = f"SELECT {self._key(which)}, _id FROM {_quoted(self._names[which])} WHERE vault = ?"  # noqa: S608
        return dict(self._paged(which, text, vault))

    def graves(self, which: Which, vault: str) -> Mapping[Key, str]:
        if which in self._missing:
            return {}
        key = self._key(which)
        deleted = f"FROM {_quoted(self._names[which] + '__history')} WHERE _op = 'delete' AND vault = ? GROUP BY {key}"
        return dict(self._paged(which, f"SELECT {key}, max_by(_id, _seq) AS _id {deleted}", vault))

    def publish(self, which: Which, events: Sequence[Mapping[str, Any]]) -> str:
        return self._client.publish(self._names[which], events).token

    def vaults(self) -> list[str]:
        """The names of all vaults that have notes."""
        text = f"SELECT DISTINCT vault FROM {_quoted(self._names['notes'])} ORDER BY vault"  # noqa: S608
        return [row["vault"] for row in self._ask(text, [])]

    def further(self) -> dict[str, ColumnType]:
        """The columns of the table of notes that front matter fills."""
        found = self._client.table(self._names["notes"])
        self._check("notes", self._names["notes"], found)
        return further_columns(found["columns"])

    def rows(self, vault: str) -> Iterator[dict[str, Any]]:
        """The notes of a vault in the order of their paths, all columns of them."""
        table = _quoted(self._names["notes"])
        sizes = "strlen(coalesce(body, '')) + strlen(coalesce(front_matter_text, '')) + 1000"
        text = f"SELECT path, {sizes} AS size FROM {table} WHERE vault = ?"  # noqa: S608
        for first, last in _spans(self._pages(text, ("path",), vault)):
            text = f"SELECT * FROM {table} WHERE vault = ? AND path BETWEEN ? AND ? ORDER BY path"  # noqa: S608
            answer = self._ask(text, [vault, first, last])
            if answer.truncated:
                raise _cut_short(table)
            yield from answer.rows()

    def _ask(self, text: str, parameters: list[Any]) -> Answer:
        """All that had a receipt is in the answer; what a large load left to be committed is waited for."""
        return self._client.sql(text, parameters, max_rows=PAGE_ROWS, when_behind="wait", timeout_s=QUERY_SECONDS)

    def _key(self, which: Which) -> str:
        return ", ".join(_KEYS[which])

    def _paged(self, which: Which, text: str, vault: str) -> Iterator[tuple[Key, str]]:
        columns = _KEYS[which]
        for row in self._pages(text, columns[1:], vault):
            yield tuple(row[column] for column in columns), row["_id"]

    def _pages(self, text: str, order: Sequence[str], vault: str) -> Iterator[dict[str, Any]]:
        """All rows of a query, page by page after the columns of `order`, which together are unique."""
        columns = ", ".join(order)
        after: list[Any] = []
        while True:
            beyond = f"WHERE ({columns}) > ({', '.join('?' * len(order))})" if after else ""
            page = f"SELECT * FROM ({text}) {beyond} ORDER BY {columns}"  # noqa: S608
            answer = self._ask(page, [vault, *after])
            rows = answer.rows()
            yield from rows
            if not answer.truncated:
                return
            if not rows:
                raise _cut_short(self._names["notes"])
            after = [rows[-1][column] for column in order]


def _quoted(name: str) -> str:
    return ".".join(f'"{part}"' for part in name.split("."))


def _spans(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """First and last path of groups of notes that fit into one answer."""
    first = last = ""
    size = 0
    for row in rows:
        if size and size + int(row["size"]) > _PAGE_BYTES:
            yield first, last
            size = 0
        first = row["path"] if not size else first
        last = row["path"]
        size += int(row["size"])
    if size:
        yield first, last


def _cut_short(table: str) -> FrazilError:
    return FrazilError(
        f"an answer about {table} was cut short", code="answer_cut_short", hint="run the same command again"
    )
