"""Profiles: a named way to search a table, and the artifacts that it is answered from.

A profile binds a table, and optionally a model, an index, a filter and the shape of answers. One with a model or
an index of its own has artifacts of its own, on the shelf `table@profile`; any other is answered from the table's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from frazil.errors import InvalidInput, NotFound
from frazil.events.declaration import table_name
from frazil.registry import Registry, update_document
from frazil.requests import Mode, ProfileRequest, decode_request

PREFIX = "profile/"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")


@dataclass(frozen=True)
class Profile:
    name: str
    table: str
    """With its namespace."""
    model: str | None = None
    index: Mapping[str, Any] | None = None
    filter: str | None = None
    """A condition that every search by this profile has, beside its own."""
    mode: Mode | None = None
    k: int | None = None
    columns: tuple[str, ...] | None = None

    @property
    def shelf(self) -> str:
        """The name of the shelf that its artifacts are on."""
        return shelf_name(self.table, self.name) if self.model or self.index else self.table

    def body(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "table": self.table.removeprefix("main.")}


def shelf_name(table: str, profile: str | None = None) -> str:
    """`main.notes`, or `main.notes@fast` for a profile that has artifacts of its own."""
    return table if profile is None else f"{table}@{profile}"


def parse_profile(name: str, body: Any) -> Profile:
    """A profile as somebody declares it. Whether the table has such columns and vectors is seen by others."""
    if not _NAME.match(name):
        raise _bad(f"{name[:80]!r} is not the name of a profile", "use a-z, 0-9, _ and -, beginning with a letter")
    request = decode_request(body, ProfileRequest)
    if request.name not in (None, name):
        raise _bad(f"it is named {name!r} and says {str(request.name)[:80]!r}", "leave out `name`")
    return Profile(
        name,
        table_name(request.table),
        request.model,
        None if request.index is None else _index(request.index),
        request.filter,
        request.mode,
        request.k,
        request.columns,
    )


def _index(declared: Any) -> Mapping[str, Any]:
    from frazil.serving.vectors.config import IndexConfig  # its room loads the engine, which few profiles need

    return IndexConfig.parse(declared).as_json()


class Profiles:
    """All of them, in the lake's registry. Methods block."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def put(self, profile: Profile) -> None:
        update_document(self._registry, PREFIX + profile.name, lambda _: msgspec.json.encode(profile))

    def get(self, name: str) -> Profile:
        document = self._registry.get(PREFIX + name) if _NAME.match(name) else None
        if document is None:
            raise no_such_profile(name)
        return msgspec.json.decode(document.body, type=Profile)

    def list(self, table: str | None = None) -> list[Profile]:
        found = [msgspec.json.decode(document.body, type=Profile) for document in self._registry.list(PREFIX)]
        return [profile for profile in found if table in (None, profile.table)]

    def delete(self, name: str) -> None:
        self.get(name)
        document = self._registry.get(PREFIX + name)
        if document is not None:
            self._registry.delete(document.key, document.version)


def no_such_profile(name: str) -> NotFound:
    return NotFound(f"there is no profile {name[:80]!r}", code="profile_not_found", hint="frazil profiles list")


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_profile", hint=hint)
