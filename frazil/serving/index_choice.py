"""Index choice: the index of a shelf's artifacts where somebody chose one, by a trial or by hand.

Without a choice, the default follows the number of vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from frazil.registry import Registry, update_document
from frazil.serving.vectors.config import IndexConfig

PREFIX = "chosen-index/"


@dataclass(frozen=True)
class IndexChoice:
    """It counts for the model that it was measured with."""

    model: str
    config: dict[str, object]
    because: str
    at: str

    @property
    def index(self) -> IndexConfig:
        return IndexConfig.parse(self.config)


def chosen_index(registry: Registry, shelf: str, model: str) -> IndexChoice | None:
    """What was chosen for this shelf and model; None: the default."""
    return _choices(registry, shelf).get(model)


def choose_index(registry: Registry, shelf: str, model: str, config: IndexConfig, because: str) -> IndexChoice:
    """The next build takes it. Several models each keep their own."""
    choice = IndexChoice(model, config.as_json(), because, datetime.now(UTC).isoformat())
    update_document(registry, PREFIX + shelf, lambda body: msgspec.json.encode({**_decoded(body), model: choice}))
    return choice


def forget_index(registry: Registry, shelf: str, model: str) -> None:
    """Back to the default."""
    update_document(
        registry,
        PREFIX + shelf,
        lambda body: msgspec.json.encode({name: one for name, one in _decoded(body).items() if name != model}),
    )


def _choices(registry: Registry, shelf: str) -> dict[str, IndexChoice]:
    document = registry.get(PREFIX + shelf)
    return _decoded(None if document is None else document.body)


def _decoded(body: bytes | None) -> dict[str, IndexChoice]:
    return {} if body is None else msgspec.json.decode(body, type=dict[str, IndexChoice])
