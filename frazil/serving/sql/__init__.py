"""SQL pool: queries queued fairly and answered by sandboxed worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.sql.errors import FilesUnreadable as FilesUnreadable
    from frazil.serving.sql.errors import QueryTimeout as QueryTimeout
    from frazil.serving.sql.fair_queue import FairQueue as FairQueue
    from frazil.serving.sql.pool import QueryPool as QueryPool
    from frazil.serving.sql.query import Relation as Relation
    from frazil.serving.sql.query import Result as Result
    from frazil.serving.sql.query import SqlQuery as SqlQuery
    from frazil.serving.sql.query import TableRef as TableRef
    from frazil.serving.sql.query import TailRows as TailRows
    from frazil.serving.sql.settings import QuerySettings as QuerySettings

__getattr__, __all__ = lazy_door(__name__)
