"""Parameters of the query string, checked."""

from __future__ import annotations

import math

from starlette.requests import Request

from frazil.errors import InvalidInput
from frazil.events.declaration import table_name

_MOST_DIGITS = 20


def table_of(request: Request) -> str:
    return table_name(request.path_params["table"])


def only(request: Request, *known: str) -> None:
    """Refuse a parameter that nobody reads: a typo must not be ignored."""
    if not request.scope["query_string"]:
        return  # as nearly always: reading nothing takes longer than seeing that there is nothing
    for name in request.query_params:
        if name not in known:
            raise InvalidInput(
                f"there is no parameter {name[:80]!r} here",
                code="unknown_parameter",
                hint="the parameters are " + ", ".join(known) if known else "there are none",
            )


def seconds(request: Request, name: str, *, default: float, most: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise InvalidInput(f"`{name}` is a number of seconds from 0 to {most:g}", code="bad_parameter")
    return value


def whole_number(request: Request, name: str, *, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    # Not `int` of a text of any length: beyond 4,300 digits it raises, and long before that it takes its time.
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not 1 <= int(text) <= most:
        raise InvalidInput(f"`{name}` is a whole number from 1 to {most:,}", code="bad_parameter")
    return int(text)


def flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise InvalidInput(f"`{name}` is true or false", code="bad_parameter")
    return text in ("true", "1")
