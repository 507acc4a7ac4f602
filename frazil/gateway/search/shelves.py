"""What a search needs of the part that loads generations: for a table, one open shelf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from frazil.lake.catalog import LakeTable
from frazil.serving import Profile

if TYPE_CHECKING:
    from frazil.serving.search import Searchable, ServedGenerations


class OpenShelf(Protocol):
    @property
    def table(self) -> str:
        """With its namespace."""

    @property
    def searchable(self) -> Searchable: ...

    @property
    def serving(self) -> ServedGenerations:
        """Another object is another set of fresh documents: whoever feeds them begins anew."""


class Shelves(Protocol):
    async def of(self, table: LakeTable, profile: Profile | None = None) -> OpenShelf:
        """Open, with its current generation loaded if there is one."""
