"""Registry: small shared documents in the catalog's database, changed by compare-and-swap; jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.registry.change_counter import ChangeCount as ChangeCount
    from frazil.registry.change_counter import ChangeCounter as ChangeCounter
    from frazil.registry.database import catalog_damaged as catalog_damaged
    from frazil.registry.database import database_error as database_error
    from frazil.registry.documents import Document as Document
    from frazil.registry.documents import Registry as Registry
    from frazil.registry.documents import update_document as update_document
    from frazil.registry.jobs import Job as Job
    from frazil.registry.jobs import ProgressCallback as ProgressCallback
    from frazil.registry.jobs import finish_job as finish_job
    from frazil.registry.jobs import job_status as job_status
    from frazil.registry.jobs import list_jobs as list_jobs
    from frazil.registry.jobs import open_jobs as open_jobs
    from frazil.registry.jobs import set_progress as set_progress
    from frazil.registry.jobs import submit_job as submit_job

__getattr__, __all__ = lazy_door(__name__)
