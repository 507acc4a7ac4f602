"""What a table must hold, said as simply as possible: the rule of `frazil.events.id_window` over a list of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sent:
    """One message as it stands in the stream; its sequence is its place in the list, from 1."""

    ids: tuple[str, ...]
    received_us: int
    values: tuple[int, ...]
    group: str = ""
    part: int = 1
    parts: int = 1


@dataclass(frozen=True, order=True)
class Expected:
    """One row."""

    seq: int
    id: str
    received_us: int
    value: int


def counts(stream: Sequence[Sent], at: int) -> bool:
    """Whether the message at this index counts: alone, or with all parts of its group around it."""
    message = stream[at]
    if not message.group:
        return True
    start = at - (message.part - 1)
    around = stream[max(start, 0) : start + message.parts]
    whole = [(message.group, part + 1, message.parts) for part in range(message.parts)]
    return start >= 0 and [(other.group, other.part, other.parts) for other in around] == whole


def expected_rows(stream: Sequence[Sent], window_us: int) -> list[Expected]:
    """An event counts unless one of its id counted before and was received less than one window earlier."""
    rows: list[Expected] = []
    for at, message in enumerate(stream):
        if not counts(stream, at):
            continue
        for index, (event_id, value) in enumerate(zip(message.ids, message.values, strict=True)):
            earlier = [row for row in rows if row.id == event_id]
            if not any(message.received_us - row.received_us < window_us for row in earlier):
                rows.append(Expected((at + 1) * 2**20 + index, event_id, message.received_us, value))
    return rows


def undecided_from(stream: Sequence[Sent]) -> int:
    """The sequence of the first message at the end that may yet become part of a whole group, or one after the end."""
    for number in range(1, len(stream) + 1):
        tail = stream[-number:]
        first = tail[0]
        going_on = [(first.group, part + 1, first.parts) for part in range(number)]
        if first.group and number < first.parts and [(m.group, m.part, m.parts) for m in tail] == going_on:
            return len(stream) - number + 1
    return len(stream) + 1
