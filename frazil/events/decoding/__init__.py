"""Decoding of request bodies: JSON and Arrow to typed rows, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.events.decoding.body import NDJSON as NDJSON
    from frazil.events.decoding.body import decode_events as decode_events
    from frazil.events.decoding.json_text import Wrong as Wrong
    from frazil.events.decoding.json_text import decoder as decoder
    from frazil.events.decoding.json_text import depth as depth
    from frazil.events.decoding.json_text import shown as shown
    from frazil.events.decoding.json_values import INT as INT
    from frazil.events.decoding.json_values import LONG as LONG
    from frazil.events.decoding.json_values import MAX_TIMESTAMP as MAX_TIMESTAMP
    from frazil.events.decoding.json_values import MIN_TIMESTAMP as MIN_TIMESTAMP
    from frazil.events.decoding.json_values import converter as converter
    from frazil.events.decoding.limits import Limits as Limits
    from frazil.events.decoding.raw_event import event_as_sent as event_as_sent
    from frazil.events.decoding.raw_event import raw_data as raw_data

__getattr__, __all__ = lazy_door(__name__)
