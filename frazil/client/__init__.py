"""Client: frazil from Python, over HTTP. `frazil.connect()` opens one.

Publishing again is safe: every event has an id before the first try, so a batch whose answer was lost counts once.
Errors are those of `frazil.errors`, with the code, hint and details of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.client.answer import Answer as Answer
    from frazil.client.answer import Cut as Cut
    from frazil.client.client import Client as Client
    from frazil.client.event_bodies import ARROW as ARROW
    from frazil.client.event_bodies import MAX_BATCH_BYTES as MAX_BATCH_BYTES
    from frazil.client.event_bodies import MAX_BATCH_EVENTS as MAX_BATCH_EVENTS
    from frazil.client.event_bodies import NDJSON as NDJSON
    from frazil.client.event_bodies import arrow_batches as arrow_batches
    from frazil.client.event_bodies import encode_json as encode_json
    from frazil.client.event_bodies import event_batches as event_batches
    from frazil.client.event_bodies import event_id as event_id
    from frazil.client.event_bodies import identity_of as identity_of
    from frazil.client.freshness import merge_tokens as merge_tokens
    from frazil.client.location import locate as locate
    from frazil.client.publishing import PublishReceipt as PublishReceipt
    from frazil.client.search import SearchAnswer as SearchAnswer
    from frazil.client.search import SearchHit as SearchHit
    from frazil.client.sql import EncodedAnswer as EncodedAnswer

__getattr__, __all__ = lazy_door(__name__)
