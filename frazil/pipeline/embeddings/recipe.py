"""Recipe of an embedding run: table, model and time, the same for all of its pieces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from frazil.embedding import OWN, ModelSpec
from frazil.events.declaration import TableSpec


@dataclass(frozen=True)
class Recipe:
    spec: TableSpec
    name: str
    version: str
    dims: int
    at: datetime
    """The time that its rows carry: that of the request, so that doing it again writes the same."""
    model: ModelSpec | None = None
    """None where the vectors are the users' own."""

    @property
    def is_own(self) -> bool:
        return self.name == OWN
