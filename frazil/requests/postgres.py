"""Postgres request: an archive of a source, or a refresh of one of its tables."""

from __future__ import annotations

from datetime import date
from typing import Annotated, ClassVar, Literal, Self

from msgspec import Meta
from msgspec.structs import force_setattr

from frazil.errors import InvalidInput
from frazil.events.declaration import NAME, table_name
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.job_request import JobRequest
from frazil.requests.table import NOT_A_TABLE

_Name = Annotated[str, Meta(min_length=1, max_length=200)]


class PostgresRequest(JobRequest, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        noun="a load",
        code="bad_load",
        shape="a load from a Postgres is an object with `source`",
        example='{"source": "shop", "what": "archive"}',
    )
    empty_means_default: ClassVar[frozenset[str]] = frozenset(
        {"what", "tables", "run_date", "into", "kind", "cursor", "overlap", "nulls", "key"}
    )

    source: str
    what: Annotated[
        Literal["archive", "incremental", "full"],
        Refusal("{value} is no kind of load", "one of archive, incremental, full"),
    ] = "archive"
    tables: Annotated[tuple[_Name, ...], Refusal("`tables` is a list of names", '"tables": ["orders"]')] = ()
    """Names and patterns; empty for what the source's settings say."""
    run_date: Annotated[date, Refusal("{value} is no date", "write it as 2026-11-16")] | None = None
    """The night of an archive; today where it is not said."""
    into: Annotated[str, NOT_A_TABLE] = ""
    """The table of frazil that a refresh fills; the name of the Postgres table where it is not said."""
    kind: Annotated[Literal["log", "entity"], Refusal("{value} is no kind of table", "log or entity")] = "log"
    """The kind of a table that a refresh makes."""
    cursor: Annotated[str, Meta(max_length=200), Refusal("`cursor` is a name", '"cursor": "updated_at"')] = ""
    overlap: Annotated[
        float,
        Meta(ge=0, lt=1e12),
        Refusal("`overlap` is a number from 0 on", "units of a number, days of a date, seconds of a timestamp"),
    ] = 0.0
    nulls: Annotated[
        Literal["skip", "include"],
        Refusal("`nulls` is skip or include", "skip leaves rows without a cursor value out"),
    ] = "skip"
    key: Annotated[tuple[_Name, ...], Refusal("`key` is a list of names", '"key": ["orders"]')] = ()
    """The key of the target; the primary key where it is not said."""

    @classmethod
    def parse(cls, body: object) -> Self:
        """A single name may stand for a list of one."""
        if isinstance(body, dict):
            lists = {name: [body[name]] for name in ("tables", "key") if body.get(name) and isinstance(body[name], str)}
            body = {**body, **lists}
        return super().parse(body)

    def __post_init__(self) -> None:
        if not NAME.match(self.source):
            hint = "use a-z, 0-9 and _, beginning with a letter"
            raise InvalidInput(f"{self.source[:80]!r} is no name of a source", code="bad_load", hint=hint)
        if self.into:
            force_setattr(self, "into", table_name(self.into))
        if self.what != "archive" and len(self.tables) != 1:
            hint = "name it in `tables`, and the target in `into`"
            raise InvalidInput("a refresh takes one table", code="bad_load", hint=hint)
        if (self.what == "incremental") != bool(self.cursor):
            hint = 'for example "cursor": "updated_at"'
            raise InvalidInput("a cursor belongs to an incremental load", code="bad_load", hint=hint)
