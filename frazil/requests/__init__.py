"""Requests: what callers may ask, declared once for HTTP, the client and the CLI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.requests.decode import Refusal as Refusal
    from frazil.requests.decode import Request as Request
    from frazil.requests.decode import RequestWords as RequestWords
    from frazil.requests.decode import decode_request as decode_request
    from frazil.requests.freshness import DEFAULT_FRESHNESS as DEFAULT_FRESHNESS
    from frazil.requests.freshness import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
    from frazil.requests.freshness import MAX_TIMEOUT_S as MAX_TIMEOUT_S
    from frazil.requests.freshness import MIN_TIMEOUT_S as MIN_TIMEOUT_S
    from frazil.requests.freshness import Freshness as Freshness
    from frazil.requests.freshness import FreshnessSpec as FreshnessSpec
    from frazil.requests.freshness import FreshRequest as FreshRequest
    from frazil.requests.freshness import Waiting as Waiting
    from frazil.requests.freshness import WhenBehind as WhenBehind

__getattr__, __all__ = lazy_door(__name__)
