"""What somebody wants of a Postgres: the request of an archive or a refresh, checked field by field."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any, Literal

from frazil.errors import InvalidInput
from frazil.events.declaration import NAME, table_name

What = Literal["archive", "incremental", "full"]
WHATS = ("archive", "incremental", "full")


@dataclass(frozen=True)
class PostgresAsk:
    source: str
    what: What = "archive"
    tables: tuple[str, ...] = ()
    """Names and patterns; empty for what the source's settings say."""
    run_date: date | None = None
    """The night of an archive; today where it is not said."""
    into: str = ""
    """The table of frazil that a refresh fills; the name of the Postgres table where it is not said."""
    kind: Literal["log", "entity"] = "log"
    """What a refresh makes of a table that is not there yet."""
    cursor: str = ""
    overlap: float = 0.0
    nulls: Literal["skip", "include"] = "skip"
    key: tuple[str, ...] = ()
    """The key of the target; the primary key where it is not said."""

    def params(self) -> dict[str, Any]:
        """As the job carries it; `parse_postgres` of it gives this again."""
        given = asdict(self)
        return {**given, "run_date": self.run_date.isoformat() if self.run_date else None}


_FIELDS = ("source", "what", "tables", "run_date", "into", "kind", "cursor", "overlap", "nulls", "key")


def parse_postgres(body: Any) -> PostgresAsk:
    """A request from JSON, or `InvalidInput` that says what would be right."""
    if not isinstance(body, dict) or not isinstance(body.get("source"), str):
        raise _bad("a load from a Postgres is an object with `source`", '{"source": "shop", "what": "archive"}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(_FIELDS)}"
            raise InvalidInput(f"a load has no field {str(name)[:80]!r}", code="unknown_field", hint=hint)
    if not NAME.match(body["source"]):
        raise _bad(f"{body['source'][:80]!r} is no name of a source", "use a-z, 0-9 and _, beginning with a letter")
    what: Any = body.get("what") or "archive"
    if what not in WHATS:
        raise _bad(f"{str(what)[:40]!r} is no kind of load", f"one of {', '.join(WHATS)}")
    kind: Any = body.get("kind") or "log"
    if kind not in ("log", "entity"):
        raise _bad(f"{str(kind)[:40]!r} is no kind of table", "log or entity")
    nulls: Any = body.get("nulls") or "skip"
    if nulls not in ("skip", "include"):
        raise _bad("`nulls` is skip or include", "skip leaves rows without a cursor value out")
    overlap = body.get("overlap") or 0
    if isinstance(overlap, bool) or not isinstance(overlap, int | float) or not 0 <= overlap < 1e12:
        raise _bad("`overlap` is a number from 0 on", "units of a number, days of a date, seconds of a timestamp")
    asked = PostgresAsk(
        source=body["source"],
        what=what,
        tables=_texts(body, "tables"),
        run_date=_date(body.get("run_date")),
        into=table_name(body["into"]) if body.get("into") else "",
        kind=kind,
        cursor=_text(body, "cursor"),
        overlap=float(overlap),
        nulls=nulls,
        key=_texts(body, "key"),
    )
    if asked.what != "archive" and len(asked.tables) != 1:
        raise _bad("a refresh takes one table", "name it in `tables`, and the target in `into`")
    if (asked.what == "incremental") != bool(asked.cursor):
        raise _bad("a cursor belongs to an incremental load", 'for example "cursor": "updated_at"')
    return asked


def _texts(body: dict[str, Any], name: str) -> tuple[str, ...]:
    value = body.get(name) or []
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) and 0 < len(text) <= 200 for text in value):
        raise _bad(f"`{name}` is a list of names", f'"{name}": ["orders"]')
    return tuple(value)


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str) or len(value) > 200:
        raise _bad(f"`{name}` is a name", f'"{name}": "updated_at"')
    return value


def _date(value: Any) -> date | None:
    try:
        return date.fromisoformat(value) if value else None
    except (TypeError, ValueError):
        raise _bad(f"{str(value)[:40]!r} is no date", "write it as 2026-11-16") from None


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_load", hint=hint)
