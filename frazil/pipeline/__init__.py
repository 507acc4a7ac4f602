"""Pipeline: the process that commits every stream to its table with Spark, and runs jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.pipeline.journal_notes import note_writer as note_writer
    from frazil.pipeline.pipeline import Pipeline as Pipeline
    from frazil.pipeline.session import is_alive as is_alive
    from frazil.pipeline.session import open_session as open_session
    from frazil.pipeline.session import packages as packages
    from frazil.pipeline.settings import MailSettings as MailSettings
    from frazil.pipeline.settings import PipelineSettings as PipelineSettings
    from frazil.pipeline.settings import SourceSettings as SourceSettings
    from frazil.pipeline.settings import WatchSettings as WatchSettings
    from frazil.pipeline.settings import flat_settings as flat_settings
    from frazil.pipeline.spark_secrets import is_secret as is_secret
    from frazil.pipeline.status_file import starting as starting

__getattr__, __all__ = lazy_door(__name__)
