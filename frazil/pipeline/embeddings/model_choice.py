"""Model choice: the model that a table is embedded with."""

from __future__ import annotations

from frazil.embedding import OWN
from frazil.errors import Conflict, InvalidInput
from frazil.events.declaration import TableSpec
from frazil.requests import EmbedRequest


def model_of(spec: TableSpec) -> str:
    """The model that the table is searched with; `InvalidInput` for a table that is not."""
    if spec.kind == "history":
        raise _bad(f"{spec.short_name!r} is a history", "embed its entity")
    if spec.searched is None:
        raise _bad(
            f"{spec.short_name!r} has no text to search",
            'declare it with columns of text, as in "text": ["title", "body"], or with a `vector`',
        )
    if not spec.is_streamed:
        raise _bad(
            f"{spec.short_name!r} takes no events, so that its rows have no ids to be found by",
            "load into a table of kind log or entity",
        )
    return OWN if spec.searched.vector is not None else spec.searched.model


def check_model(spec: TableSpec, request: EmbedRequest) -> str:
    """The model to embed with, if the table can have it."""
    of_table = model_of(spec)
    wanted = request.model or of_table
    if wanted == OWN and of_table != OWN:
        raise _bad(f"{spec.short_name!r} has no column of vectors", 'declare one: "search": {"vector": "embedding"}')
    if wanted != OWN and not spec.text:
        raise _bad(f"{spec.short_name!r} names no columns of text, only vectors of its own", f"--model {OWN}")
    if of_table == OWN and wanted != OWN and not request.shadow:
        raise Conflict(
            f"{spec.short_name!r} is searched by the vectors in {spec.searched and spec.searched.vector!r}",
            code="own_vectors",
            hint="embed its text beside them with --shadow",
        )
    return wanted


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_embedding", hint=hint)
