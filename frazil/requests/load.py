"""Load request: CSV files that become rows of a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from frazil.errors import InvalidInput
from frazil.events.declaration import parse_columns, table_name
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.job_request import JobRequest
from frazil.requests.table import NOT_A_TABLE, NOT_COLUMNS, AnyColumn, check_columns

_MAX_FILES = 10_000


def _text(name: str) -> Refusal:
    return Refusal(f"`{name}` is a text", code="bad_csv_option")


@dataclass(frozen=True)
class Tolerance:
    """Limit of bad rows, above which a load fails as a whole: a number, or a share of all rows."""

    rows: int | None = None
    share: float | None = 0.05

    def allows(self, bad: int, rows: int) -> bool:
        if self.rows is not None:
            return bad <= self.rows
        return bad <= (self.share or 0.0) * rows

    def __str__(self) -> str:
        return f"{self.rows:,} rows" if self.rows is not None else f"{100 * (self.share or 0):g} % of the rows"


class LoadRequest(JobRequest, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        noun="a load",
        code="bad_load",
        shape="a load is an object",
        example='{"table": "orders", "files": ["/data/o.csv"]}',
        unknown_fields_first=True,
    )
    empty_means_default: ClassVar[frozenset[str]] = frozenset({"mode", "columns", "null_words", "source", "uploaded"})

    table: Annotated[str, NOT_A_TABLE] = ""
    files: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(min_length=1),
        Refusal("`files` is a list of paths", '"files": ["/data/orders.csv"]'),
    ]
    mode: Annotated[Literal["append", "replace"], Refusal("{value} is no mode", "append or replace")] = "append"
    delimiter: Annotated[str, _text("delimiter")] | None = None
    quote: Annotated[str, _text("quote")] | None = None
    escape: Annotated[str, _text("escape")] | None = None
    header: Annotated[bool, Refusal("`header` is true or false", code="bad_csv_option")] | None = None
    encoding: Annotated[str, _text("encoding")] | None = None
    null_words: Annotated[
        tuple[str, ...], Refusal("`null_words` is a list of texts", '["NA", "NULL"]', "bad_csv_option")
    ] = ()
    columns: Annotated[dict[str, AnyColumn], NOT_COLUMNS] = msgspec.field(default_factory=dict)
    """Declared columns (type and checks) by their cleaned names; the others are inferred."""
    max_bad: Any = None
    """`100` rows, `"5%"`, `0.05`, or as a job carries it: an object of `rows` and `share`."""
    source: Annotated[str, Meta(max_length=500), Refusal("`source` is a short text")] = ""
    """The source of the lineage; the files' names where it is empty."""
    uploaded: bool = False
    """The files are copies that the gateway took in: they go when the load is done."""

    def __post_init__(self) -> None:
        if len(self.files) > _MAX_FILES:
            raise InvalidInput(f"a load takes at most {_MAX_FILES:,} files", code="bad_load", hint="load them in parts")
        check_columns(self.columns)
        parse_columns(self.columns)
        force_setattr(self, "table", table_name(self.table))
        force_setattr(self, "max_bad", asdict(parse_tolerance(self.max_bad)))

    @property
    def tolerance(self) -> Tolerance:
        return parse_tolerance(self.max_bad)


def parse_tolerance(value: Any) -> Tolerance:
    """`100` rows, `"5%"`, `0.05`, or as a job carries it."""
    if value is None:
        return Tolerance()
    if isinstance(value, dict):
        return Tolerance(value.get("rows"), value.get("share"))
    text = str(value).strip()
    try:
        if text.endswith("%"):
            share = float(text[:-1]) / 100
        elif isinstance(value, float) or "." in text:
            share = float(text)
        else:
            return _checked(Tolerance(rows=int(text), share=None))
        return _checked(Tolerance(share=share))
    except ValueError:
        raise _bad_tolerance(text) from None


def _checked(tolerance: Tolerance) -> Tolerance:
    if (tolerance.rows is not None and tolerance.rows < 0) or not 0 <= (tolerance.share or 0) <= 1:
        raise _bad_tolerance(str(tolerance))
    return tolerance


def _bad_tolerance(text: str) -> InvalidInput:
    return InvalidInput(f"{text[:40]!r} is no number of bad rows", code="bad_load", hint='for example 100 or "5%"')
