"""What a caller searches for: every field of POST /v1/search, checked. What only the table can tell is left to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, cast

from frazil.errors import InvalidInput, TooLarge
from frazil.events import Token
from frazil.events.declaration import table_name

Mode = Literal["vector", "text", "hybrid"]
Freshness = Literal["live", "committed"]
MODES: tuple[Mode, ...] = ("vector", "text", "hybrid")

MAX_QUERY_CHARACTERS = 10_000
MAX_DIMENSIONS = 16_384
MAX_FILTER = 10_000
MAX_K = 1_000
MAX_OFFSET = 9_999
MAX_TIMEOUT_SECONDS = 300.0
MAX_SNIPPET = 10_000
DEFAULT_K = 10
DEFAULT_SNIPPET = 200
_MAX_NAMES = 200
# The largest float of 32 bits: beyond it a vector would have infinities, and an integer may be beyond all floats.
_MOST_OF_A_NUMBER = 3.4028234663852886e38
_FIELDS = (
    "table profile query vector mode k offset min_score weights fields filter columns group snippet freshness "
    "min_token timeout_s when_behind".split()
)


@dataclass(frozen=True)
class SearchAsk:
    table: str | None
    """With its namespace; None where the profile says."""
    profile: str | None = None
    query: str | None = None
    vector: Sequence[float] | None = None
    mode: Mode | None = None
    k: int | None = None
    offset: int = 0
    min_score: float | None = None
    vector_weight: float = 1.0
    text_weight: float = 1.0
    fields: Mapping[str, float] | None = None
    filter: str | None = None
    columns: tuple[str, ...] | None = None
    by_document: bool = True
    snippet_characters: int = DEFAULT_SNIPPET
    freshness: Freshness = "live"
    min_token: Token = field(default_factory=Token)
    timeout_seconds: float = 30.0
    wait_when_behind: bool = False


def parse_search(body: Any) -> SearchAsk:
    """The search in a request's JSON."""
    if not isinstance(body, dict):
        raise _bad("a search is an object", '{"table": "notes", "query": "green tea"}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            raise InvalidInput(
                f"a search has no field {str(name)[:80]!r}",
                code="unknown_field",
                hint=f"did you mean {close[0]!r}?" if close else "its fields are " + ", ".join(_FIELDS),
            )
    # What is absent and what is null mean the same: the default.
    given = {name: value for name, value in body.items() if value is not None}
    table, profile = given.get("table"), given.get("profile")
    if table is None and profile is None:
        raise _bad("a search names a `table` or a `profile`", '{"table": "notes", "query": "green tea"}')
    query, vector = _query(given.get("query")), _vector(given.get("vector"))
    if query is None and vector is None:
        raise _bad("a search needs a `query` in words, or a `vector`", '{"table": "notes", "query": "green tea"}')
    vector_weight, text_weight = _weights(given.get("weights"))
    return SearchAsk(
        table=None if table is None else table_name(_text(table, "table", 200)),
        profile=None if profile is None else _text(profile, "profile", 200),
        query=query,
        vector=vector,
        mode=None if "mode" not in given else cast(Mode, _choice(given, "mode", MODES)),
        k=None if "k" not in given else _whole(given, "k", 1, MAX_K),
        offset=_whole(given, "offset", 0, MAX_OFFSET) if "offset" in given else 0,
        min_score=_number(given["min_score"], "min_score") if "min_score" in given else None,
        vector_weight=vector_weight,
        text_weight=text_weight,
        fields=_fields(given.get("fields")),
        filter=_filter(given.get("filter")),
        columns=_columns(given.get("columns")),
        by_document=_choice(given, "group", ("document", "chunk")) == "document",
        snippet_characters=_snippet(given.get("snippet")),
        freshness=cast(Freshness, _choice(given, "freshness", ("live", "committed"))),
        min_token=_token(given.get("min_token")),
        timeout_seconds=_timeout(given.get("timeout_s", 30.0)),
        wait_when_behind=_choice(given, "when_behind", ("error", "wait")) == "wait",
    )


def _text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > most or not _is_plain(value):
        raise _bad(f"`{name}` is a text of 1 to {most:,} characters")
    return value


def _is_plain(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _query(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and len(value) > MAX_QUERY_CHARACTERS:
        raise TooLarge(
            f"the query has more than {MAX_QUERY_CHARACTERS:,} characters",
            code="query_too_large",
            hint="search for a part of it",
        )
    return _text(value, "query", MAX_QUERY_CHARACTERS)


def _vector(value: Any) -> list[float] | None:
    if value is None:
        return None
    # Looked at all at once: thousands of numbers one by one take longer than the search.
    fits = isinstance(value, list) and 1 <= len(value) <= MAX_DIMENSIONS and {*map(type, value)} <= {int, float}
    if not fits or max(value) > _MOST_OF_A_NUMBER or min(value) < -_MOST_OF_A_NUMBER:
        raise InvalidInput(
            f"`vector` is a list of 1 to {MAX_DIMENSIONS:,} numbers, each a float of 32 bits",
            code="bad_vector",
            hint="[0.1, -0.2, …]",
        )
    return cast("list[float]", value)


def _filter(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_FILTER or not _is_plain(value):
        raise InvalidInput(
            f"`filter` is a condition in SQL of at most {MAX_FILTER:,} characters",
            code="bad_filter",
            hint="for example: lang = 'en' AND year >= 2020",
        )
    return value.strip()


def _fields(value: Any) -> dict[str, float] | None:
    if value is None:
        return None
    named = dict.fromkeys(value, 1.0) if isinstance(value, list) and _are_names(value) else value
    if not isinstance(named, dict) or not 1 <= len(named) <= _MAX_NAMES:
        raise _bad("`fields` is a list of text columns, or an object of column and weight", '["title", "body"]')
    return {str(name): _weight(weight, f"the weight of {str(name)[:80]!r}") for name, weight in named.items()}


def _columns(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > _MAX_NAMES or not _are_names(value):
        raise _bad("`columns` is a list of names", '["title"]; [] for none')
    return tuple(dict.fromkeys(value))


def _are_names(value: list[Any]) -> bool:
    return all(isinstance(name, str) and len(name) <= 200 for name in value)


def _weights(value: Any) -> tuple[float, float]:
    given = {} if value is None else value
    if not isinstance(given, dict) or not given.keys() <= {"vector", "text"}:
        raise _bad("`weights` is an object of `vector` and `text`", '{"vector": 1, "text": 0.5}')
    vector, text = (_weight(given.get(name, 1.0), f"`weights.{name}`") for name in ("vector", "text"))
    if not vector and not text:
        raise _bad("one of the weights is more than 0", '{"vector": 1, "text": 0.5}')
    return vector, text


def _weight(value: Any, name: str) -> float:
    weight = _number(value, name)
    if not 0 <= weight <= 1_000:
        raise _bad(f"{name} is a number from 0 to 1,000")
    return weight


def _number(value: Any, name: str) -> float:
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # of an integer beyond all floats
        number = math.nan
    if not math.isfinite(number):
        raise _bad(f"{name} is a number")
    return number


def _whole(given: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = given[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _bad(f"`{name}` is a whole number from {least:,} to {most:,}")
    return value


def _timeout(value: Any) -> float:
    seconds = _number(value, "`timeout_s`")
    if not 0.1 <= seconds <= MAX_TIMEOUT_SECONDS:
        raise _bad(f"`timeout_s` is a number from 0.1 to {MAX_TIMEOUT_SECONDS:g}")
    return seconds


def _snippet(value: Any) -> int:
    if value is None or value is True:
        return DEFAULT_SNIPPET
    if value is False:
        return 0
    if not isinstance(value, int) or not 0 <= value <= MAX_SNIPPET:
        raise _bad(f"`snippet` is true, false, or a number of characters up to {MAX_SNIPPET:,}")
    return value


def _choice(given: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    value = given.get(name, choices[0])
    if value not in choices:
        raise _bad(f"`{name}` is {str(value)[:40]!r}", "one of " + ", ".join(choices))
    return str(value)


def _token(text: Any) -> Token:
    return Token() if text is None else Token.parse(text if isinstance(text, str) else "")


def _bad(message: str, hint: str = "") -> InvalidInput:
    return InvalidInput(message, code="bad_search", hint=hint)
