"""The cut of a searched table: the very one that SQL would take, and how the changes above a position are read from it.

An entity is cut together with its history: the history tells which keys were touched, the entity what became of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frazil.access import ReadGrant
from frazil.events import Token, first_position
from frazil.events.declaration import history_of
from frazil.gateway.query.cut import CutMoved, TableSource
from frazil.gateway.query.resolve import Resolver
from frazil.lake.catalog import LakeTable
from frazil.requests import FreshnessSpec
from frazil.serving.sql import Relation, TableRef
from frazil.tables import TableDirectory, source_of

# Everything: what a caller may see of it is decided on the documents, not when they are fed.
_ALL = ReadGrant()


@dataclass(frozen=True)
class Reach:
    """How far a table has come."""

    table: LakeTable
    """The log, or the history of the entity."""
    is_entity: bool
    end: int

    @property
    def short_name(self) -> str:
        return self.table.token_name.removeprefix("main.")


@dataclass(frozen=True)
class TableCut(Reach):
    """One state of a table. Its tail must be read before anything is waited for."""

    relations: Sequence[Relation]

    @property
    def relation(self) -> Relation:
        return self.relations[0]


@dataclass(frozen=True)
class FoundCut:
    """A table at the freshness that was asked for. Both speak of the moment in which they are called."""

    sources: Sequence[TableSource]
    reach: Callable[[], Reach]
    """For the many searches that find everything fed: a cut takes a hundred times as long."""
    cut: Callable[[], TableCut]

    def token(self, end: int) -> Token:
        """The token of an answer that has everything below this position."""
        table = self.sources[-1].table
        return Token.of(table.token_name, table.stream_identity, end - 1)


class Cuts:
    def __init__(self, resolver: Resolver, directory: TableDirectory) -> None:
        self._resolver = resolver
        self._directory = directory

    async def find(self, table: LakeTable, ask: FreshnessSpec, *, deadline: float, guess: bool) -> FoundCut:
        """Wait until the table is as fresh as asked. With `guess`, `confirm` what was read."""
        names = [table.name, *([history_of(table.name)] if table.spec.kind == "entity" else [])]
        sources = await self._resolver.resolve(
            [(_reference(name), _ALL) for name in names], ask, deadline=deadline, guess=guess
        )

        fed, tail = sources[-1].table, sources[-1].tail
        of_base = sources[0].entity

        def newest(known: LakeTable) -> LakeTable:
            return self._directory.known(known.name, source_of(known)) or known

        def reach() -> Reach:
            history = newest(fed)
            if tail is not None and tail.complete_from > history.watermark:
                raise CutMoved(f"{history.spec.short_name!r} is changing", hint="try again")
            folded = 0 if of_base is None else newest(of_base.base).watermark
            end = max(history.watermark, folded, tail.ready_to if tail is not None else 0)
            return Reach(history, of_base is not None, end)

        def cut() -> TableCut:
            relations, tables = self._resolver.cut(sources)
            assert tables[0].end is not None, "only a snapshot of the past says nothing of its end"
            return TableCut(newest(fed), tables[0].is_entity, tables[0].end, relations)

        return FoundCut(sources, reach, cut)

    async def confirm(self, found: FoundCut, end: int) -> None:
        """Raise `CutMoved` unless every event that had its receipt when the search began is below this position."""
        for source in found.sources:
            if source.head is not None and end < first_position(await source.head + 1):
                raise CutMoved(f"{source.table.spec.short_name!r} is changing", hint="try again")

    async def look_again(self) -> None:
        await self._resolver.look_again()


def _reference(name: str) -> TableRef:
    schema, _, table = name.partition(".")
    return TableRef(schema, table, (schema, table))
