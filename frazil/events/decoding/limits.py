"""Limits of one request, and the errors that name a limit or each bad event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from frazil.errors import BadEvents, InvalidInput, TooLarge

MAX_DETAILS = 100


@dataclass(frozen=True)
class Limits:
    """Each limit has its own error code: body_too_large, event_too_large, too_many_events, too_deep, too_many_fields,
    too_many_partitions.

    `max_body_bytes` also bounds what a compressed Arrow stream unpacks to. Depth counts objects and lists inside each
    other, the event itself being 1. `max_fields` counts the fields of one event's `data`, without those nested in them.
    """

    max_body_bytes: int = 64 << 20
    max_event_bytes: int = 1 << 20
    max_events: int = 200_000
    max_depth: int = 32
    max_fields: int = 1000
    max_partitions: int = 5000
    claim: Callable[[int], None] = field(default=lambda size: None, compare=False)
    """Called with a number of bytes before so much memory is used; raises where there is none left."""


class Problems:
    """The bad events of one batch: the first hundred reasons, and how many events there are."""

    def __init__(self) -> None:
        self.details: list[dict[str, Any]] = []
        self._events: set[int] = set()

    def add(self, index: int, field: str, reason: str) -> None:
        self._events.add(index)
        if len(self.details) < MAX_DETAILS:
            self.details.append({"index": index, "field": field, "reason": reason})

    def raise_if_any(self, total: int) -> None:
        if not self._events:
            return
        bad = len(self._events)
        self.details.sort(key=lambda detail: int(detail["index"]))
        first = self.details[0]
        at = f", {first['field']}" if first["field"] else ""
        raise BadEvents(
            f"{bad:,} of {total:,} events {'is' if bad == 1 else 'are'} not valid, the first: "
            f"event {first['index']}{at}: {first['reason']}",
            hint="nothing was stored: correct the events in `details` and send the whole request again",
            details=self.details,
        )


def check_body(body: bytes, limits: Limits) -> None:
    if len(body) > limits.max_body_bytes:
        raise body_too_large(len(body), limits)


def check_event_count(count: int, limits: Limits) -> None:
    if count > limits.max_events:
        raise TooLarge(
            f"the request has more than {limits.max_events:,} events",
            code="too_many_events",
            hint="send the events in several requests",
        )


def body_too_large(size: int, limits: Limits) -> TooLarge:
    return TooLarge(
        f"the body has {size:,} bytes, the limit is {limits.max_body_bytes:,}",
        code="body_too_large",
        hint="send the events in several requests",
    )


def event_too_large(index: int, size: int, limits: Limits) -> TooLarge:
    return TooLarge(
        f"event {index} has {size:,} bytes, the limit is {limits.max_event_bytes:,}",
        code="event_too_large",
        hint="split the event, or store the large value elsewhere and send its URL",
        details=[{"index": index, "field": "", "reason": f"{size:,} bytes"}],
    )


def too_deep(index: int | None, limits: Limits) -> TooLarge:
    return TooLarge(
        f"{'the body' if index is None else f'event {index}'} has more than {limits.max_depth} nested levels",
        code="too_deep",
        hint="flatten the event, or send the inner part as text",
        details=None if index is None else [{"index": index, "field": "", "reason": "too many nested levels"}],
    )


def too_many_fields(index: int | None, count: int, limits: Limits) -> TooLarge:
    return TooLarge(
        f"{'the stream' if index is None else f'event {index}'} has {count:,} fields, "
        f"the limit is {limits.max_fields:,}",
        code="too_many_fields",
        hint="put rarely used fields into one json column",
        details=None if index is None else [{"index": index, "field": "data", "reason": f"{count:,} fields"}],
    )


def empty_batch() -> InvalidInput:
    return InvalidInput("the request has no events", code="empty_batch", hint="send at least one event")


def names_hint(name: str, known: Sequence[str]) -> str:
    """The end of a reason that names an unknown field: the closest name, or all known names."""
    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known names: " + ", ".join(list(known)[:20]) + (", …" if len(known) > 20 else "")
