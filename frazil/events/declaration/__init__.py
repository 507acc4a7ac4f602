"""Declarations of tables: names, columns, types, checks, partitions, search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.events.declaration.column_checks import MAX_LISTED as MAX_LISTED
    from frazil.events.declaration.column_checks import MAX_PATTERN as MAX_PATTERN
    from frazil.events.declaration.column_checks import NO_CHECKS as NO_CHECKS
    from frazil.events.declaration.column_checks import Checks as Checks
    from frazil.events.declaration.column_checks import Limit as Limit
    from frazil.events.declaration.column_checks import check_value as check_value
    from frazil.events.declaration.column_checks import whole_match as whole_match
    from frazil.events.declaration.column_types import NAME as NAME
    from frazil.events.declaration.column_types import TIMESTAMP as TIMESTAMP
    from frazil.events.declaration.column_types import ColumnType as ColumnType
    from frazil.events.declaration.column_types import parse_type as parse_type
    from frazil.events.declaration.partitions import PartitionKey as PartitionKey
    from frazil.events.declaration.partitions import count_partitions as count_partitions
    from frazil.events.declaration.partitions import too_long as too_long
    from frazil.events.declaration.partitions import unfit_for_folder as unfit_for_folder
    from frazil.events.declaration.search_spec import MAX_CHUNK_SIZE as MAX_CHUNK_SIZE
    from frazil.events.declaration.search_spec import MIN_CHUNK_SIZE as MIN_CHUNK_SIZE
    from frazil.events.declaration.search_spec import MODEL_NAME as MODEL_NAME
    from frazil.events.declaration.search_spec import ChunkBoundary as ChunkBoundary
    from frazil.events.declaration.search_spec import Chunking as Chunking
    from frazil.events.declaration.search_spec import SearchSpec as SearchSpec
    from frazil.events.declaration.table_names import quote_name as quote_name
    from frazil.events.declaration.table_spec import DEAD_LETTERS_SUFFIX as DEAD_LETTERS_SUFFIX
    from frazil.events.declaration.table_spec import DROPPED_NAMESPACE as DROPPED_NAMESPACE
    from frazil.events.declaration.table_spec import EMBEDDINGS_SUFFIX as EMBEDDINGS_SUFFIX
    from frazil.events.declaration.table_spec import EXTRA as EXTRA
    from frazil.events.declaration.table_spec import MAX_COLUMNS as MAX_COLUMNS
    from frazil.events.declaration.table_spec import PATCH as PATCH
    from frazil.events.declaration.table_spec import QUARANTINE_SUFFIX as QUARANTINE_SUFFIX
    from frazil.events.declaration.table_spec import SYSTEM_NAMESPACE as SYSTEM_NAMESPACE
    from frazil.events.declaration.table_spec import TRIALS_SUFFIX as TRIALS_SUFFIX
    from frazil.events.declaration.table_spec import Column as Column
    from frazil.events.declaration.table_spec import Partition as Partition
    from frazil.events.declaration.table_spec import Snapshots as Snapshots
    from frazil.events.declaration.table_spec import TableSpec as TableSpec
    from frazil.events.declaration.table_spec import UnknownFields as UnknownFields
    from frazil.events.declaration.table_spec import check_declarable as check_declarable
    from frazil.events.declaration.table_spec import dead_letters_of as dead_letters_of
    from frazil.events.declaration.table_spec import embedded_of as embedded_of
    from frazil.events.declaration.table_spec import embeddings_of as embeddings_of
    from frazil.events.declaration.table_spec import entity_of as entity_of
    from frazil.events.declaration.table_spec import history_of as history_of
    from frazil.events.declaration.table_spec import parse_column as parse_column
    from frazil.events.declaration.table_spec import parse_columns as parse_columns
    from frazil.events.declaration.table_spec import parse_table as parse_table
    from frazil.events.declaration.table_spec import refused_embeddings_of as refused_embeddings_of
    from frazil.events.declaration.table_spec import table_name as table_name
    from frazil.events.declaration.table_spec import trials_of as trials_of

__getattr__, __all__ = lazy_door(__name__)
