"""Embeddings: texts in chunks, chunks as vectors, by a model on this machine or by a provider.

    spec = model_spec(name, settings.models)              # where the settings are; travels to tasks
    model = open_model(spec)                              # once in each process
    chunks = chunked(document_text(row[column] for column in table.text), table.searched.chunk)
    outcome = embedded(model, [chunk.passage for chunk in chunks])

The names below are imported when they are first used: settings are read by commands that embed nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.embedding.chunks import Chunk, chunked, content_hash, document_text
    from frazil.embedding.documents import (
        OWN,
        OWN_VERSION,
        Cut,
        cut,
        document_columns,
        document_ids,
        own,
        present,
        recipe_of,
    )
    from frazil.embedding.model import Model, Vectors
    from frazil.embedding.opening import open_model
    from frazil.embedding.outcome import Embedded, Failure, embedded, embedded_in_batches
    from frazil.embedding.settings import ModelSettings
    from frazil.embedding.spec import ModelSpec, model_spec

_HOMES = {
    "Chunk": "chunks",
    "Cut": "documents",
    "Embedded": "outcome",
    "Failure": "outcome",
    "Model": "model",
    "ModelSettings": "settings",
    "ModelSpec": "spec",
    "OWN": "documents",
    "OWN_VERSION": "documents",
    "Vectors": "model",
    "chunked": "chunks",
    "content_hash": "chunks",
    "cut": "documents",
    "document_columns": "documents",
    "document_ids": "documents",
    "document_text": "chunks",
    "embedded": "outcome",
    "embedded_in_batches": "outcome",
    "model_spec": "spec",
    "open_model": "opening",
    "own": "documents",
    "present": "documents",
    "recipe_of": "documents",
}

__all__ = [
    "OWN",
    "OWN_VERSION",
    "Chunk",
    "Cut",
    "Embedded",
    "Failure",
    "Model",
    "ModelSettings",
    "ModelSpec",
    "Vectors",
    "chunked",
    "content_hash",
    "cut",
    "document_columns",
    "document_ids",
    "document_text",
    "embedded",
    "embedded_in_batches",
    "model_spec",
    "open_model",
    "own",
    "present",
    "recipe_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
