"""Synchronisation of a folder to its tables: only differences are published.

Notes and links are compared each for itself with what its table has. A run that is killed anywhere, between the two
tables or inside one, leaves a difference that the next run finds and publishes; what it had published it finds too, or
repeats under the same ids.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from frazil.client import encode_json
from frazil.crash import crash_point
from frazil.errors import Conflict, InvalidInput
from frazil.events.declaration import ColumnType
from frazil.events.decoding import Limits
from frazil.vault.columns import LINKS_KEY, NOTES_KEY
from frazil.vault.files import Listing, Skipped, Unread, read_note, walk
from frazil.vault.links import VaultIndex
from frazil.vault.note import Note, Row, parse
from frazil.vault.note_changes import Key, NoteChange, changes, is_ours

MAX_EVENT_BYTES = Limits().max_event_bytes
Which = Literal["notes", "links"]


class VaultTables(Protocol):
    """The two tables as a synchronisation needs them. Keys are the values of the key columns, the vault first."""

    def versions(self, which: Which, vault: str) -> Mapping[Key, str]:
        """The id of the newest event of every row of the vault, all that had a receipt included."""

    def graves(self, which: Which, vault: str) -> Mapping[Key, str]:
        """The id of the newest deletion of every key of the vault that was ever deleted."""

    def publish(self, which: Which, events: Sequence[Mapping[str, Any]]) -> str:
        """The events are durable, in their order, each id once; returns the token. Calling it again is safe."""


@dataclass(frozen=True)
class Warned:
    path: str
    warning: str


@dataclass(frozen=True)
class SyncReport:
    vault: str
    files: int
    new: int
    changed: int
    deleted: int
    unchanged: int
    foreign: int
    """Notes of other producers that no file is known of; they are left alone."""
    links: int
    links_published: int
    links_deleted: int
    skipped: tuple[Skipped, ...]
    warnings: tuple[Warned, ...]
    seconds: float
    token: str
    planned: tuple[tuple[str, str], ...] = ()
    """For a dry run: what would be done to which note."""

    @property
    def published(self) -> int:
        return self.new + self.changed + self.deleted + self.links_published + self.links_deleted


class VaultSync:
    """One folder and its tables. Keeps what it has parsed, so that the next run parses only what was edited."""

    def __init__(
        self,
        root: Path,
        vault: str,
        tables: VaultTables,
        *,
        further: Mapping[str, ColumnType] | None = None,
        combine_tokens: Callable[[str, str], str] = lambda first, second: second or first,
    ) -> None:
        if not vault or len(vault) > 200 or not vault.isprintable():
            raise InvalidInput(f"{vault[:60]!r} is no name of a vault", code="bad_vault", hint="give one with --vault")
        self._root = root
        self._vault = vault
        self._tables = tables
        self._further = dict(further or {})
        self._combine_tokens = combine_tokens
        self._parsed: dict[str, tuple[bytes, Note]] = {}

    def run(self, *, dry_run: bool = False, allow_empty: bool = False) -> SyncReport:
        """Compare and publish. An empty folder is refused where the table has notes of it, unless that is allowed."""
        begun = time.monotonic()
        listing = walk(self._root)
        notes = self._notes(listing)
        current = self._tables.versions("notes", self._vault)
        if not notes and not allow_empty and any(is_ours(id) for id in current.values()):
            raise Conflict(
                f"{self._root} has no notes, but the table has {len(current):,} of this vault",
                code="vault_is_empty",
                hint="is it the right folder, and is its disk there? --allow-empty deletes all of them",
            )
        of_notes = self._changes_of_notes(listing, notes, current)
        links, of_links = self._changes_of_links(listing, notes)
        token = "" if dry_run else self._publish(of_notes, of_links)
        did = Counter(change.what for change in of_notes)
        did_links = Counter(change.what for change in of_links)
        foreign = sum(not is_ours(id) for key, id in current.items() if key[1] not in notes)
        return SyncReport(
            vault=self._vault,
            files=len(notes),
            new=did["new"],
            changed=did["changed"],
            deleted=did["deleted"],
            unchanged=len(notes) - did["new"] - did["changed"],
            foreign=foreign,
            links=links,
            links_published=did_links["new"] + did_links["changed"],
            links_deleted=did_links["deleted"],
            skipped=tuple(sorted(listing.skipped, key=lambda skipped: skipped.path)),
            warnings=tuple(Warned(path, text) for path, note in notes.items() for text in note.warnings),
            seconds=time.monotonic() - begun,
            token=token,
            planned=tuple((change.what, str(change.key[1])) for change in of_notes) if dry_run else (),
        )

    def _notes(self, listing: Listing) -> dict[str, Note]:
        """All notes that can be read; the others are in the listing."""
        found: dict[str, tuple[bytes, Note]] = {}
        for path, place in listing.notes.items():
            try:
                raw = read_note(place)
                known = self._parsed.get(path)
                found[path] = known if known and known[0] == raw else (raw, self._parse(path, raw))
            except FileNotFoundError:
                continue  # deleted since the walk
            except Unread as error:
                listing.skipped.append(Skipped(path, str(error)))
            except UnicodeDecodeError as error:
                listing.skipped.append(Skipped(path, f"it is not UTF-8 (byte {error.start:,})"))
        self._parsed = found
        return {path: note for path, (_, note) in found.items()}

    def _parse(self, path: str, raw: bytes) -> Note:
        note = parse(path, raw, self._further)
        _check_size(note.row(self._vault))
        return note

    def _changes_of_notes(
        self, listing: Listing, notes: Mapping[str, Note], current: Mapping[Key, str]
    ) -> list[NoteChange]:
        return changes(
            NOTES_KEY,
            current,
            {(self._vault, path): note.row(self._vault) for path, note in notes.items()},
            graves=lambda: self._tables.graves("notes", self._vault),
            keep=lambda key: listing.is_unread(key[1]) or not is_ours(current[key]),
        )

    def _changes_of_links(self, listing: Listing, notes: Mapping[str, Note]) -> tuple[int, list[NoteChange]]:
        """A new file can be the target of existing links: all links are resolved again."""
        index = VaultIndex([*notes, *listing.others, *(skipped.path for skipped in listing.skipped)])
        rows = [row for note in notes.values() for row in note.link_rows(self._vault, index)]
        current = self._tables.versions("links", self._vault)
        return len(rows), changes(
            LINKS_KEY,
            current,
            {tuple(row[column] for column in LINKS_KEY): row for row in rows},
            graves=lambda: self._tables.graves("links", self._vault),
            keep=lambda key: listing.is_unread(key[1]) or (key[1] not in notes and not is_ours(current[key])),
        )

    def _publish(self, of_notes: list[NoteChange], of_links: list[NoteChange]) -> str:
        token = ""
        if of_notes:
            token = self._tables.publish("notes", [change.event for change in of_notes])
            crash_point("vault_notes_published")
        if of_links:
            token = self._combine_tokens(token, self._tables.publish("links", [change.event for change in of_links]))
            crash_point("vault_links_published")
        return token


def _check_size(row: Row) -> None:
    """Refuse here a note that is too large: the gateway would refuse the whole batch."""
    size = len(encode_json(row)) + 1024
    if size > MAX_EVENT_BYTES:
        raise Unread(f"as an event it has {size:,} bytes, at most {MAX_EVENT_BYTES:,} are accepted")
