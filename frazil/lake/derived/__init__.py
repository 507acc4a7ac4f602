"""Derived tables: embeddings and trials of another table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.derived.embeddings import EmbeddingProgress as EmbeddingProgress
    from frazil.lake.derived.embeddings import delete_embeddings as delete_embeddings
    from frazil.lake.derived.embeddings import drop_embeddings as drop_embeddings
    from frazil.lake.derived.embeddings import embedded_up_to as embedded_up_to
    from frazil.lake.derived.embeddings import embedding_models as embedding_models
    from frazil.lake.derived.embeddings import embeddings_spec as embeddings_spec
    from frazil.lake.derived.embeddings import embeddings_table as embeddings_table
    from frazil.lake.derived.embeddings import forget_refusals as forget_refusals
    from frazil.lake.derived.embeddings import refused_embeddings_spec as refused_embeddings_spec
    from frazil.lake.derived.embeddings import refused_embeddings_table as refused_embeddings_table
    from frazil.lake.derived.embeddings import undrop_embeddings as undrop_embeddings
    from frazil.lake.derived.table_trigger import TableTrigger as TableTrigger
    from frazil.lake.derived.trials import journal_trials as journal_trials
    from frazil.lake.derived.trials import read_trials as read_trials

__getattr__, __all__ = lazy_door(__name__)
