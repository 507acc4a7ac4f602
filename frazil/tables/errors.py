"""Errors of a table that changed while a request was under way: find it again and try once more."""

from __future__ import annotations

from frazil.errors import FrazilError, Unavailable


class TableReplaced(Unavailable):
    """The table was dropped, or another took its name, while this was under way: find it again."""

    code = "table_replaced"


class SchemaMoved(FrazilError):
    """The table changed while the request was decoded, and the two do not fit: decode it again."""

    code = "schema_moved"
    status = 503
    transient = True
