"""Embedding jobs: rows to chunks to vectors, in Spark tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.embeddings.embed_trigger import EmbedTrigger as EmbedTrigger
    from frazil.pipeline.embeddings.handler import EmbeddingJobs as EmbeddingJobs
    from frazil.pipeline.embeddings.model_choice import check_model as check_model
    from frazil.pipeline.embeddings.model_choice import model_of as model_of

__getattr__, __all__ = lazy_door(__name__)
