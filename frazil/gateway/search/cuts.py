"""The cut of a searched table: the very one that SQL would take, and how the changes above a position are read from it.

An entity is cut together with its history: the history tells which keys were touched, the entity what became of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frazil.access import ReadGrant
from frazil.events import history_of
from frazil.gateway.ingest import TableDirectory, source_of
from frazil.gateway.query import Ask
from frazil.gateway.query.cut import CutTable, Source
from frazil.gateway.query.resolve import Resolver
from frazil.lake import LakeTable
from frazil.serving import Relation, TableRef

# Everything: what a caller may see of it is decided on the documents, not when they are fed.
_ALL = ReadGrant()


@dataclass(frozen=True)
class TableCut:
    """One state of a table. Its tail must be read before anything is waited for."""

    table: LakeTable
    """The log, or the history of the entity."""
    relations: Sequence[Relation]
    told: CutTable

    @property
    def relation(self) -> Relation:
        return self.relations[0]

    @property
    def end(self) -> int:
        assert self.told.end is not None, "only a snapshot of the past says nothing of its end"
        return self.told.end


@dataclass(frozen=True)
class Found:
    """A table at the freshness that was asked for; `cut` takes the cut of the moment in which it is called."""

    sources: Sequence[Source]
    cut: Callable[[], TableCut]


class Cuts:
    def __init__(self, resolver: Resolver, directory: TableDirectory) -> None:
        self._resolver = resolver
        self._directory = directory

    async def find(self, table: LakeTable, ask: Ask, *, deadline: float, guess: bool) -> Found:
        """Wait until the table is as fresh as asked. With `guess`, `confirm` what was read."""
        names = [table.name, *([history_of(table.name)] if table.spec.kind == "entity" else [])]
        sources = await self._resolver.resolve(
            [(_reference(name), _ALL) for name in names], ask, deadline=deadline, guess=guess
        )

        def cut() -> TableCut:
            relations, told = self._resolver.cut(sources)
            fed = sources[-1].table
            return TableCut(self._directory.known(fed.name, source_of(fed)) or fed, relations, told[0])

        return Found(sources, cut)

    async def confirm(self, found: Found, told: CutTable) -> None:
        """Raise `CutMoved` unless every event that had its receipt when the search began is below the cut's end."""
        await self._resolver.confirm(found.sources, [told])

    async def look_again(self) -> None:
        await self._resolver.look_again()


def _reference(name: str) -> TableRef:
    schema, _, table = name.partition(".")
    return TableRef(schema, table, (schema, table))
