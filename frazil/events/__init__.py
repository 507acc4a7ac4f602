"""Events: positions, batches, the id window and freshness tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.events.batch import ROWS as ROWS
    from frazil.events.batch import URGENT as URGENT
    from frazil.events.batch import StreamMessage as StreamMessage
    from frazil.events.batch import complete_messages as complete_messages
    from frazil.events.batch import conform as conform
    from frazil.events.batch import decode as decode
    from frazil.events.batch import encode as encode
    from frazil.events.batch import encode_parts as encode_parts
    from frazil.events.batch import part_headers as part_headers
    from frazil.events.batch import rows as rows
    from frazil.events.event_equality import differing_rows as differing_rows
    from frazil.events.id_window import CLOCK_SKEW_US as CLOCK_SKEW_US
    from frazil.events.id_window import IS_NEW as IS_NEW
    from frazil.events.id_window import IdWindow as IdWindow
    from frazil.events.id_window import Ints as Ints
    from frazil.events.id_window import Keys as Keys
    from frazil.events.id_window import id_keys as id_keys
    from frazil.events.positions import INDEX_BITS as INDEX_BITS
    from frazil.events.positions import MAX_EVENTS_PER_MESSAGE as MAX_EVENTS_PER_MESSAGE
    from frazil.events.positions import Mark as Mark
    from frazil.events.positions import Token as Token
    from frazil.events.positions import first_position as first_position
    from frazil.events.positions import sequence_of as sequence_of

__getattr__, __all__ = lazy_door(__name__)
