"""Grants: what a token may do, as it was declared and as it applies to one table.

A grant is a scope, `ingest:<tables>`, `read:<tables>`, `sql` or `admin`; `<tables>` is a name, `namespace.*` or `*`.
The tables of frazil's own, `system.*`, are matched only by grants that say `system`. A grant to read one table may show
only the rows of a filter, and mask columns.

When several grants let a token read a table:

- A grant adds nothing where another one shows all rows and masks no more than it does.
- Of those that are left, a row is shown if any of their filters shows it, and a column is masked if any of them masks
  it, with the mask that hides more.

So no row shows a column that the grant for that row hides. The price: if two grants hide different columns, a token
with both grants sees neither column.

A hash shows which values are equal, but only within its *domain*. By default the domain is one column of one
table for one token, so that no other table, column or token confirms a guess. `hash(people)` names a domain: equal
values have equal hashes in all columns that name it, for all tokens that do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec

from frazil.errors import InvalidInput
from frazil.events.declaration import SYSTEM_NAMESPACE, embedded_of, entity_of, table_name
from frazil.requests import MASK, MAX_GRANTS, GrantRequest, decode_request

# A stored grant with another mask is not read, and its token refused: none is shown more than was granted.
Mask = Annotated[str, msgspec.Meta(pattern=MASK)]
Verb = Literal["ingest", "read", "sql", "admin"]

# How much of a value each mask hides: a hash still shows which values are equal, in a named domain also across tables;
# a redaction shows whether there is a value.
_HIDES: dict[str, int] = {"": 0, "hash(": 1, "hash": 2, "redact": 3, "null": 4}


@dataclass(frozen=True)
class Grant:
    verb: Verb
    tables: str = ""
    """A full name, `namespace.*` or `*`; empty where the verb has no tables."""
    where: str | None = None
    masks: Mapping[str, Mask] = field(default_factory=dict)

    @property
    def scope(self) -> str:
        named = self.tables if self.tables.endswith("*") else self.tables.removeprefix("main.")
        return f"{self.verb}:{named}" if named else self.verb

    @property
    def restricts(self) -> bool:
        return self.where is not None or bool(self.masks)

    def matches(self, table: str) -> bool:
        table = entity_of(table)  # a history is as visible as what it is the history of
        if (embedded := embedded_of(table)) is not None:
            # A derived table needs a grant for all rows and columns of its table; no token can write to it.
            if self.verb == "ingest" or self.restricts:
                return False
            table = embedded
        if self.tables == "*":
            return not table.startswith(f"{SYSTEM_NAMESPACE}.")
        if self.tables.endswith(".*"):
            return table.startswith(self.tables[:-1])
        return table == self.tables

    def covers(self, other: Grant) -> bool:
        """Whether this grant shows everything that the other one shows."""
        return self.where is None and all(
            mask == other.masks.get(column) or hidden_by(mask) < hidden_by(other.masks.get(column, ""))
            for column, mask in self.masks.items()
        )

    def declared(self) -> dict[str, Any]:
        """The JSON that declares this grant."""
        words: dict[str, Any] = {"scope": self.scope}
        if self.where is not None:
            words["where"] = self.where
        if self.masks:
            words["mask"] = dict(self.masks)
        return words


@dataclass(frozen=True)
class ReadGrant:
    """What a token sees of one table."""

    filters: tuple[str, ...] = ()
    """SQL conditions; a row is shown if any of them is true. If there are none, every row is shown."""
    masks: Mapping[str, Mask] = field(default_factory=dict)
    hash_domains: Mapping[str, str] = field(default_factory=dict)
    """For each column that is masked by hash: what its salt is made from. Equal domains have equal salts."""

    @property
    def where(self) -> str | None:
        """The filters as one condition. Line ends keep a comment at the end of one from swallowing the next."""
        return " OR ".join(f"(\n{text}\n)" for text in self.filters) or None

    @property
    def is_whole(self) -> bool:
        return not self.filters and not self.masks

    def of(self, token_id: str, table: str) -> ReadGrant:
        """The same with the domain of each hash, `masks` without them. A history has the domains of its entity."""
        domains = {
            column: json.dumps([mask[5:-1]] if mask != "hash" else [token_id, entity_of(table), column])
            for column, mask in self.masks.items()
            if mask.startswith("hash")
        }
        return replace(self, masks={**self.masks, **dict.fromkeys(domains, "hash")}, hash_domains=domains)


def hidden_by(mask: str) -> int:
    """How much a mask hides: the more, the higher; 0 for none."""
    return _HIDES["hash(" if mask.startswith("hash(") else mask]


def combined(grants: Sequence[Grant]) -> ReadGrant | None:
    """What these grants, all of them for the same table, show together; None if there are none."""
    kept: list[Grant] = []
    for grant in grants:
        if not any(other.covers(grant) for other in kept):
            kept = [other for other in kept if not grant.covers(other)] + [grant]
    if not kept:
        return None
    masks: dict[str, Mask] = {}
    for grant in kept:
        for column, mask in grant.masks.items():
            masks[column] = _stricter(mask, masks.get(column, mask))
    filters = [grant.where for grant in kept if grant.where is not None]
    whole = len(filters) < len(kept)
    return ReadGrant(() if whole else tuple(dict.fromkeys(filters)), masks)


def _stricter(one: Mask, other: Mask) -> Mask:
    """Of two different named domains neither: the default domain shows less than both."""
    if one != other and hidden_by(one) == hidden_by(other):
        return "hash"
    return max(one, other, key=hidden_by)


def parse_grants(declared: Any) -> tuple[Grant, ...]:
    """Grants from their JSON: scopes alone, or objects `{scope, where?, mask?}`."""
    if not isinstance(declared, list) or not 1 <= len(declared) <= MAX_GRANTS:
        raise _bad(f"`grants` is a list of 1 to {MAX_GRANTS} grants", hint='["sql", "read:notes"]')
    return tuple(_parse_grant(entry) for entry in declared)


def _parse_grant(declared: Any) -> Grant:
    request = decode_request({"scope": declared} if isinstance(declared, str) else declared, GrantRequest)
    verb, tables = _parse_scope(request.scope)
    grant = Grant(verb, tables, None if request.where is None else request.where.strip(), request.masks)
    if grant.restricts and (verb != "read" or tables.endswith("*")):
        raise _bad(
            f"{grant.scope!r} cannot have a filter or masks",
            hint="use them only in a grant to read one table, for example read:notes",
        )
    return grant


def _parse_scope(text: str) -> tuple[Verb, str]:
    verb, colon, tables = text.strip().partition(":")
    if verb in ("sql", "admin") and not colon:
        return verb, ""  # type: ignore[return-value]
    if verb not in ("ingest", "read") or not tables:
        raise _bad(
            f"{text[:80]!r} is not a valid scope",
            hint="use ingest:<table>, read:<table>, sql or admin; * means every table",
        )
    if tables == "*":
        full = "*"
    elif tables.endswith(".*"):
        full = f"{table_name(tables[:-1] + 'x').removesuffix('.x')}.*"
    else:
        full = table_name(tables)
        if (embedded := embedded_of(full)) is not None:
            raise _bad(
                f"{tables[:80]!r} is a derived table and cannot have its own grants",
                hint=f"use {verb}:{embedded.removeprefix('main.')}; it applies to both tables",
            )
        if full != entity_of(full):
            raise _bad(
                f"{tables[:80]!r} is a history and cannot have its own grants",
                hint=f"use {verb}:{entity_of(tables)}; it applies to the entity and its history",
            )
    if verb == "ingest" and full.startswith(f"{SYSTEM_NAMESPACE}."):
        raise _bad("tables of the namespace system are read-only", hint=f"use read:{tables}")
    return verb, full  # type: ignore[return-value]


def _bad(message: str, *, hint: str = "") -> InvalidInput:
    return InvalidInput(message, code="bad_grant", hint=hint)


def matching(grants: Iterable[Grant], verb: Verb, table: str) -> list[Grant]:
    return [grant for grant in grants if grant.verb == verb and grant.matches(table)]
