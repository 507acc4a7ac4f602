"""HTTP edge: server, connections, middleware, bodies and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.gateway.http.server import listen as listen
    from frazil.gateway.http.server import serve as serve

__getattr__, __all__ = lazy_door(__name__)
