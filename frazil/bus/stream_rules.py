"""Stream rules: limits of names and sizes, and the errors that every bus raises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil.errors import BusGap, BusReplaced, InvalidInput, TooLarge, Unavailable

if TYPE_CHECKING:
    from frazil.bus import Message

MAX_MESSAGE_BYTES = 8 << 20
MAX_HEADER_BYTES = 16 << 10
MAX_MESSAGES_PER_PUBLISH = 1000
DUPLICATE_WINDOW_SECONDS = 120.0

_NAME = re.compile(r"[a-z0-9_]{1,63}(\.[a-z0-9_]{1,63}){0,2}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_TEXT = re.compile(r"[!-~]([ -~]*[!-~])?")
_MESSAGE_ID = re.compile(r"[!-~]{1,128}")


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot be the name of a stream",
            code="bad_name",
            hint="use lower-case letters, digits and underscores, with a dot between namespace and table",
        )


def check_publish(messages: Sequence[Message], message_id: str) -> None:
    """Refuse before anything is sent what one of the backends could not carry unchanged."""
    if not messages:
        raise InvalidInput("there is nothing to publish", hint="pass at least one message")
    if len(messages) > MAX_MESSAGES_PER_PUBLISH:
        raise TooLarge(
            f"{len(messages)} messages in one publish, at most {MAX_MESSAGES_PER_PUBLISH} fit",
            hint="publish fewer or larger messages at a time",
        )
    if not _MESSAGE_ID.fullmatch(message_id):
        raise InvalidInput(
            f"{message_id[:40]!r} cannot be a message id", hint="use 1 to 128 printable characters without spaces"
        )
    for message in messages:
        if len(message.body) > MAX_MESSAGE_BYTES:
            raise TooLarge(
                f"a message of {len(message.body)} bytes, at most {MAX_MESSAGE_BYTES} fit",
                hint="split the batch into several messages of one publish",
            )
        _check_headers(message)


def _check_headers(message: Message) -> None:
    size = 0
    for key, value in message.headers.items():
        size += len(key) + len(value)
        if not _HEADER.fullmatch(key) or key.lower().startswith("nats-") or not _TEXT.fullmatch(value):
            raise InvalidInput(
                f"the header {key!r} cannot be carried",
                hint="use a short name of letters, digits and dashes, and printable ASCII as its value",
            )
    if size > MAX_HEADER_BYTES:
        raise TooLarge(f"{size} bytes of headers, at most {MAX_HEADER_BYTES} fit", hint="put large values in the body")


def gap(name: str, wanted: int, found: int) -> BusGap:
    """Messages that were to be read are gone."""
    return BusGap(
        f"messages {wanted} to {found - 1} of the stream of {name} are gone",
        hint=f"run `frazil repair bus {name}` to see what is missing and to decide how to go on",
        details={"table": name, "wanted": wanted, "found": found},
    )


def lost_end(name: str, wanted: int, head: int) -> BusGap:
    """The reader has been further than the stream now reaches: new messages would get numbers already used."""
    return BusGap(
        f"the stream of {name} ends at {head}, but {wanted - 1} was read from it before: its end is lost",
        hint=f"run `frazil repair bus {name}` to see what is missing and to decide how to go on",
        details={"table": name, "wanted": wanted, "head": head},
    )


def replaced(name: str, mine: str, other: str) -> BusReplaced:
    """The stream that was opened is gone, and another one has its name."""
    return BusReplaced(
        f"the stream of {name} was replaced: {mine} was opened, {other} is there now",
        hint=f"run `frazil repair bus {name}` to accept the new stream, or bring the old bus back",
        details={"table": name, "opened": mine, "found": other},
    )


def full(name: str, reason: str) -> Unavailable:
    """The stream takes nothing more; nothing was written."""
    return Unavailable(
        f"the stream of {name} is full: {reason}",
        code="bus_full",
        hint="wait for the pipeline to commit and trim, or raise bus.max_bytes and the server's storage limit",
        retry_after_seconds=5.0,
    )


def unknown(doing: str, reason: str) -> Unavailable:
    """No answer came: a write may have happened, or may happen yet."""
    return Unavailable(
        f"the bus gave no answer to {doing}: {reason}",
        code="bus_unavailable",
        hint="try again with the same message id; `frazil doctor` looks at the bus",
    )
