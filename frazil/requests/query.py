"""Query requests: every field of POST /v1/query."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from msgspec import Meta

from frazil.errors import InvalidInput, TooLarge
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.freshness import BAD_TIME, FreshnessSpec, FreshRequest, parse_time, parse_token
from frazil.requests.texts import is_plain

Format = Literal["json", "ndjson", "csv", "arrow"]

DEFAULT_MAX_ROWS = 10_000
MAX_ROWS = 1_000_000
MAX_SQL_BYTES = 100_000
_MAX_PARAMETERS = 1_000
_MAX_TABLES = 100
_MAX_SNAPSHOT_ID = (1 << 63) - 1
_PARAMETERS = Refusal(
    f"`parameters` is a list or an object of at most {_MAX_PARAMETERS:,} values",
    'for `… WHERE a = $1` send [7], for `… WHERE a = $name` send {"name": 7}',
    "bad_parameters",
)
_BY_TABLE = Refusal("`snapshot` and `as_of` by table are objects of table and value", '{"snapshot": {"notes": 8342}}')
_SNAPSHOT_ID = Refusal("{value} is not a snapshot id", "`frazil tables history T` has them", "bad_snapshot_id")
_Sent = TypeVar("_Sent")
_Parsed = TypeVar("_Parsed")


class QueryRequest(FreshRequest, frozen=True, kw_only=True):
    """One SELECT, and how fresh, how much and how long."""

    words: ClassVar[RequestWords] = RequestWords(
        "a query", "bad_query", "a query is an object with `sql`", '{"sql": "SELECT 1"}'
    )

    sql: Annotated[str, Meta(pattern=r"\S")]
    parameters: (
        Annotated[list[Any], Meta(max_length=_MAX_PARAMETERS), _PARAMETERS]
        | Annotated[dict[str, Any], Meta(max_length=_MAX_PARAMETERS), _PARAMETERS]
        | None
    ) = None
    as_of: (
        Annotated[str, BAD_TIME]
        | Annotated[dict[str, Annotated[str, BAD_TIME]], Meta(max_length=_MAX_TABLES), _BY_TABLE]
        | None
    ) = None
    """A time with its zone: for all tables, or by table."""
    snapshot: (
        Annotated[
            dict[str, Annotated[Annotated[int, Meta(ge=0, le=_MAX_SNAPSHOT_ID)] | str, _SNAPSHOT_ID]],
            Meta(max_length=_MAX_TABLES),
            _BY_TABLE,
        ]
        | None
    ) = None
    format: Format | None = None
    """None: that of the Accept header, or JSON."""
    max_rows: Annotated[int, Meta(ge=1, le=MAX_ROWS), Refusal(f"`max_rows` is a number from 1 to {MAX_ROWS:,}")] = (
        DEFAULT_MAX_ROWS
    )

    def __post_init__(self) -> None:
        if len(self.sql.encode(errors="surrogatepass")) > MAX_SQL_BYTES:
            raise TooLarge(
                f"the SQL has more than {MAX_SQL_BYTES:,} bytes",
                code="sql_too_large",
                hint="pass long lists as parameters",
            )
        if not is_plain(self.sql):
            raise InvalidInput("the SQL has characters that are no text", code="bad_sql", hint="send plain UTF-8")
        _ = self.reads

    @cached_property
    def reads(self) -> FreshnessSpec:
        by_table = self.as_of if isinstance(self.as_of, dict) else {}
        return FreshnessSpec(
            self.freshness,
            parse_token(self.min_token),
            as_of=parse_time(self.as_of) if isinstance(self.as_of, str) else None,
            as_of_table=_by_table(by_table, parse_time),
            snapshot=_by_table(self.snapshot or {}, _snapshot_id),
            wait_when_behind=self.when_behind == "wait",
        )


def _by_table(given: dict[str, _Sent], parse: Callable[[_Sent], _Parsed]) -> dict[str, _Parsed]:
    if not given:
        return {}
    from frazil.events.declaration import table_name  # its room loads Arrow, which a client may not need

    return {table_name(name): parse(value) for name, value in given.items()}


def _snapshot_id(value: int | str) -> int:
    text = str(value)
    if not text.isdecimal() or not text.isascii() or len(text) > 20 or int(text) > _MAX_SNAPSHOT_ID:
        raise _SNAPSHOT_ID.error(value, "bad_snapshot_id")
    return int(text)
