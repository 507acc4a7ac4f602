"""Freshness of an answer: the words that queries, searches, the client and the CLI share, and their checked values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Meta

from frazil.events import Token
from frazil.requests.decode import Refusal, Request

Freshness = Literal["live", "committed"]
WhenBehind = Literal["error", "wait"]
Waiting = Callable[[], AbstractContextManager[None]]

DEFAULT_FRESHNESS: Freshness = "live"
DEFAULT_TIMEOUT_S = 30.0
MIN_TIMEOUT_S = 0.1
MAX_TIMEOUT_S: float = 300
BAD_TIME = Refusal(
    "{value} is not a time with its zone", "as in 2026-11-03T09:30:00Z", "bad_time", quoted_characters=60
)
_BAD_TOKEN = Refusal(
    "this is not a freshness token", "pass the `token` of a receipt or of an answer, unchanged", "bad_token"
)


@dataclass(frozen=True)
class FreshnessSpec:
    """The state of the tables that a reader wants to see."""

    freshness: Freshness = DEFAULT_FRESHNESS
    min_token: Token = field(default_factory=Token)
    """What it stands for is included, or waited for."""
    as_of: datetime | None = None
    """For every table that has no time or snapshot of its own."""
    as_of_table: Mapping[str, datetime] = field(default_factory=dict)
    snapshot: Mapping[str, int] = field(default_factory=dict)
    wait_when_behind: bool = False
    """Whether to wait, or to fail, when more events are uncommitted than a live answer may hold."""
    waiting: Waiting = nullcontext
    """Entered before a wait for freshness, left after it: it counts among the waits of the caller, or refuses."""


class FreshRequest(Request, dict=True, frozen=True, kw_only=True):
    """Base of the requests that read tables at a stated freshness, within a stated time."""

    freshness: Freshness = DEFAULT_FRESHNESS
    min_token: Annotated[str, _BAD_TOKEN] | None = None
    timeout_s: Annotated[float, Meta(ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S)] = DEFAULT_TIMEOUT_S
    when_behind: WhenBehind = "error"

    def __post_init__(self) -> None:
        _ = self.reads  # refuses a token that is none

    @cached_property
    def reads(self) -> FreshnessSpec:
        """The state of the tables that it reads."""
        return FreshnessSpec(self.freshness, parse_token(self.min_token), wait_when_behind=self.when_behind == "wait")


def parse_token(text: str | None) -> Token:
    return Token() if text is None else Token.parse(text)


def parse_time(text: str) -> datetime:
    """The moment of a text as in ISO 8601, with its zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BAD_TIME.error(text, "bad_time") from None
    if moment.tzinfo is None:
        raise BAD_TIME.error(text, "bad_time")
    return moment
