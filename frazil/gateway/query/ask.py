"""What a caller asks: the SQL, and how fresh, how much and how long. Every field of POST /v1/query, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal, cast

from frazil.errors import InvalidInput, TooLarge
from frazil.events import Token
from frazil.events.declaration import table_name

Freshness = Literal["live", "committed"]
Waiting = Callable[[], AbstractContextManager[None]]
Format = Literal["json", "ndjson", "csv", "arrow"]
FORMATS: tuple[Format, ...] = ("json", "ndjson", "csv", "arrow")

MAX_SQL_BYTES = 100_000
MAX_ROWS = 1_000_000
MAX_TIMEOUT_SECONDS = 300.0
_MAX_PARAMETERS = 1_000
_FIELDS = "sql parameters freshness min_token as_of snapshot format max_rows timeout_s when_behind".split()


@dataclass(frozen=True)
class Ask:
    sql: str
    parameters: list[Any] | dict[str, Any] | None = None
    freshness: Freshness = "live"
    min_token: Token = field(default_factory=Token)
    as_of: datetime | None = None
    """For every table that nothing more exact is said of."""
    as_of_table: Mapping[str, datetime] = field(default_factory=dict)
    snapshot: Mapping[str, int] = field(default_factory=dict)
    format: Format = "json"
    max_rows: int = 10_000
    timeout_seconds: float = 30.0
    wait_when_behind: bool = False
    """Whether to wait, or be told, when more events are uncommitted than a live answer may hold."""
    waiting: Waiting = nullcontext
    """Entered before a wait for freshness, left after it: it counts among the waits of whoever asks, or refuses."""


def parse_ask(body: Any, *, accept: Format = "json") -> Ask:
    """The question in a request's JSON; `accept` is the format where the body names none."""
    if not isinstance(body, dict) or not isinstance(body.get("sql"), str) or not body["sql"].strip():
        raise InvalidInput("a query is an object with `sql`", code="bad_query", hint='{"sql": "SELECT 1"}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            raise InvalidInput(
                f"a query has no field {str(name)[:80]!r}",
                code="unknown_field",
                hint=f"did you mean {close[0]!r}?" if close else "its fields are " + ", ".join(_FIELDS),
            )
    # What is absent and what is null mean the same: the default.
    given = {name: value for name, value in body.items() if value is not None}
    as_of = given.get("as_of")
    return Ask(
        sql=_sql(given["sql"]),
        parameters=_parameters(given.get("parameters")),
        freshness=cast(Freshness, _choice(given, "freshness", ("live", "committed"))),
        min_token=_token(given.get("min_token")),
        as_of=_time(as_of) if as_of is not None and not isinstance(as_of, dict) else None,
        as_of_table=_by_table(as_of, _time) if isinstance(as_of, dict) else {},
        snapshot=_by_table(given.get("snapshot", {}), _snapshot_id),
        format=cast(Format, _choice(given, "format", FORMATS, default=accept)),
        max_rows=int(_number(given, "max_rows", default=10_000, least=1, most=MAX_ROWS, whole=True)),
        timeout_seconds=_number(given, "timeout_s", default=30.0, least=0.1, most=MAX_TIMEOUT_SECONDS),
        wait_when_behind=_choice(given, "when_behind", ("error", "wait")) == "wait",
    )


def _sql(text: str) -> str:
    if len(text.encode(errors="surrogatepass")) > MAX_SQL_BYTES:
        raise TooLarge(
            f"the SQL has more than {MAX_SQL_BYTES:,} bytes", code="sql_too_large", hint="pass long lists as parameters"
        )
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidInput("the SQL has characters that are no text", code="bad_sql", hint="send plain UTF-8")
    return text


def _parameters(value: Any) -> list[Any] | dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, list | dict) or len(value) > _MAX_PARAMETERS:
        raise InvalidInput(
            f"`parameters` is a list or an object of at most {_MAX_PARAMETERS:,} values",
            code="bad_parameters",
            hint='for `… WHERE a = $1` send [7], for `… WHERE a = $name` send {"name": 7}',
        )
    return value


def _choice(given: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str | None = None) -> str:
    value = given.get(name, default or choices[0])
    if value not in choices:
        raise InvalidInput(f"`{name}` is {str(value)[:40]!r}", code="bad_query", hint="one of " + ", ".join(choices))
    return str(value)


def _token(text: Any) -> Token:
    if text is None:
        return Token()
    return Token.parse(text if isinstance(text, str) else "")


def _by_table(value: Any, parse: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > 100:
        raise InvalidInput(
            "`snapshot` and `as_of` by table are objects of table and value",
            code="bad_query",
            hint='{"snapshot": {"notes": 8342}}',
        )
    return {table_name(name): parse(entry) for name, entry in value.items()}


def _time(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(
            f"{str(text)[:60]!r} is not a time with its zone", code="bad_time", hint="as in 2026-11-03T09:30:00Z"
        )
    return moment


def _snapshot_id(value: Any) -> int:
    text = value if isinstance(value, str) else ""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        text = str(value)
    if not text.isdecimal() or not text.isascii() or len(text) > 20 or int(text) >= 1 << 63:
        raise InvalidInput(
            f"{str(value)[:40]!r} is not a snapshot id",
            code="bad_snapshot_id",
            hint="`frazil tables history T` has them",
        )
    return int(text)


def _number(
    given: Mapping[str, Any], name: str, *, default: float, least: float, most: float, whole: bool = False
) -> float:
    value = given.get(name, default)
    right = isinstance(value, int) if whole else isinstance(value, int | float)
    if not right or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInput(f"`{name}` is a number from {least:g} to {most:,.0f}", code="bad_query")
    return float(value)
