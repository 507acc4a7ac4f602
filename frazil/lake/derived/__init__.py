"""Derived tables of another table: dead letters, embeddings, trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.derived.dead_letters import DeadLetter as DeadLetter
    from frazil.lake.derived.dead_letters import add_dead_letters as add_dead_letters
    from frazil.lake.derived.dead_letters import dead_letters_table as dead_letters_table
    from frazil.lake.derived.dead_letters import dead_positions as dead_positions
    from frazil.lake.derived.dead_letters import read_dead_letters as read_dead_letters
    from frazil.lake.derived.dead_letters import remove_dead_letters as remove_dead_letters
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
