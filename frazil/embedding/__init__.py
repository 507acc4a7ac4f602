"""Embedding: models that turn text into vectors, and the chunks that they embed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.embedding.chunk_columns import OWN as OWN
    from frazil.embedding.chunk_columns import OWN_VERSION as OWN_VERSION
    from frazil.embedding.chunk_columns import ChunkColumns as ChunkColumns
    from frazil.embedding.chunk_columns import cut_rows as cut_rows
    from frazil.embedding.chunk_columns import document_columns as document_columns
    from frazil.embedding.chunk_columns import document_ids as document_ids
    from frazil.embedding.chunk_columns import recipe_of as recipe_of
    from frazil.embedding.chunk_columns import user_vector_chunks as user_vector_chunks
    from frazil.embedding.chunk_columns import without_deleted as without_deleted
    from frazil.embedding.chunk_keys import Floats as Floats
    from frazil.embedding.chunk_keys import Ints as Ints
    from frazil.embedding.chunk_keys import SortedKeys as SortedKeys
    from frazil.embedding.chunk_keys import as_matrix as as_matrix
    from frazil.embedding.chunk_keys import chunk_names as chunk_names
    from frazil.embedding.chunk_keys import keys_of_chunks as keys_of_chunks
    from frazil.embedding.chunks import Chunk as Chunk
    from frazil.embedding.chunks import chunked as chunked
    from frazil.embedding.chunks import document_text as document_text
    from frazil.embedding.model import Model as Model
    from frazil.embedding.model import RawVectors as RawVectors
    from frazil.embedding.model import Vectors as Vectors
    from frazil.embedding.model import unit as unit
    from frazil.embedding.model_spec import ModelSpec as ModelSpec
    from frazil.embedding.model_spec import find_model_spec as find_model_spec
    from frazil.embedding.opening import open_model as open_model
    from frazil.embedding.outcome import Embedded as Embedded
    from frazil.embedding.outcome import checked as checked
    from frazil.embedding.outcome import embedded as embedded
    from frazil.embedding.outcome import embedded_in_batches as embedded_in_batches
    from frazil.embedding.settings import ModelSettings as ModelSettings
    from frazil.embedding.user_vectors import checked_vectors as checked_vectors
    from frazil.embedding.user_vectors import dims_of as dims_of

__getattr__, __all__ = lazy_door(__name__)
