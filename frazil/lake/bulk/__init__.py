"""Bulk loads: data files written by tasks, committed as one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.lake.bulk.data_files import FilePlan as FilePlan
    from frazil.lake.bulk.data_files import FileWriter as FileWriter
    from frazil.lake.bulk.data_files import WrittenFile as WrittenFile
    from frazil.lake.bulk.data_files import check_file_count as check_file_count
    from frazil.lake.bulk.data_files import plan_files as plan_files
    from frazil.lake.bulk.draft_files import discard as discard
    from frazil.lake.bulk.draft_files import draft_location as draft_location
    from frazil.lake.bulk.draft_files import forget_draft as forget_draft
    from frazil.lake.bulk.draft_files import holds as holds
    from frazil.lake.bulk.draft_files import plan_draft_files as plan_draft_files
    from frazil.lake.bulk.draft_files import plan_extended_files as plan_extended_files
    from frazil.lake.bulk.file_ranges import FileGone as FileGone
    from frazil.lake.bulk.file_ranges import FileRange as FileRange
    from frazil.lake.bulk.file_ranges import files_at as files_at
    from frazil.lake.bulk.file_ranges import ranges_since as ranges_since
    from frazil.lake.bulk.file_ranges import read_groups as read_groups
    from frazil.lake.bulk.file_ranges import read_range as read_range
    from frazil.lake.bulk.file_ranges import read_rows as read_rows
    from frazil.lake.bulk.file_ranges import rows_by as rows_by
    from frazil.lake.bulk.file_ranges import sequence_number as sequence_number
    from frazil.lake.bulk.file_ranges import whole_files as whole_files
    from frazil.lake.bulk.load_commit import Load as Load
    from frazil.lake.bulk.load_commit import Replaces as Replaces
    from frazil.lake.bulk.load_commit import load_position as load_position
    from frazil.lake.bulk.load_commit import loaded_snapshot as loaded_snapshot
    from frazil.lake.bulk.load_commit import publish_load as publish_load
    from frazil.lake.bulk.load_log import LoadedFile as LoadedFile
    from frazil.lake.bulk.load_log import LoadRecord as LoadRecord
    from frazil.lake.bulk.load_log import begin_load as begin_load
    from frazil.lake.bulk.load_log import complete_load as complete_load
    from frazil.lake.bulk.load_log import forget_files as forget_files
    from frazil.lake.bulk.load_log import forget_loads as forget_loads
    from frazil.lake.bulk.load_log import lineage as lineage
    from frazil.lake.bulk.load_log import load_of_file as load_of_file
    from frazil.lake.bulk.load_log import load_record as load_record
    from frazil.lake.bulk.load_log import load_records as load_records
    from frazil.lake.bulk.loads_since import loads_since_snapshot as loads_since_snapshot

__getattr__, __all__ = lazy_door(__name__)
