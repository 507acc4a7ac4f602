"""What somebody wants loaded: the request of a CSV load, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

from frazil.errors import InvalidInput
from frazil.events.declaration import parse_columns, table_name
from frazil.pipeline.sources.csv.dialect import CsvOptions
from frazil.pipeline.sources.csv.text_encodings import known_encoding

MODES = ("append", "replace")
_OPTIONS = ("delimiter", "quote", "escape", "header", "encoding", "null_words")
_MAX_FILES = 10_000


@dataclass(frozen=True)
class Tolerance:
    """How many bad rows a load may have before it fails as a whole: so many, or such a share of all."""

    rows: int | None = None
    share: float | None = 0.05

    def allows(self, bad: int, rows: int) -> bool:
        if self.rows is not None:
            return bad <= self.rows
        return bad <= (self.share or 0.0) * rows

    def __str__(self) -> str:
        return f"{self.rows:,} rows" if self.rows is not None else f"{100 * (self.share or 0):g} % of the rows"


@dataclass(frozen=True)
class CsvLoad:
    table: str
    files: tuple[str, ...]
    mode: str = "append"
    options: CsvOptions = field(default_factory=CsvOptions)
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Declared columns (type and checks) by their cleaned names; the others are inferred."""
    tolerance: Tolerance = Tolerance()
    source: str = ""
    """What the lineage shall say; the files' names where it is empty."""
    uploaded: bool = False
    """The files are copies that the gateway took in: they go when the load is done."""

    def params(self) -> dict[str, Any]:
        """As the job carries it; `parse_load` of it gives this load again."""
        options = asdict(self.options)
        return {
            "table": self.table,
            "files": list(self.files),
            "mode": self.mode,
            **{name: options[name] for name in _OPTIONS},
            "columns": dict(self.columns),
            "max_bad": asdict(self.tolerance),
            "source": self.source,
            "uploaded": self.uploaded,
        }


_FIELDS = ("table", "files", "mode", *_OPTIONS, "columns", "max_bad", "source", "uploaded")


def parse_load(body: Any) -> CsvLoad:
    """A load from JSON, or `InvalidInput` that says what would be right."""
    if not isinstance(body, dict):
        raise InvalidInput("a load is an object", code="bad_load", hint='{"table": "orders", "files": ["/data/o.csv"]}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(_FIELDS)}"
            raise InvalidInput(f"a load has no field {str(name)[:80]!r}", code="unknown_field", hint=hint)
    files = body.get("files") or []
    if not isinstance(files, list) or not files or not all(isinstance(file, str) and file for file in files):
        raise InvalidInput("`files` is a list of paths", code="bad_load", hint='"files": ["/data/orders.csv"]')
    if len(files) > _MAX_FILES:
        raise InvalidInput(f"a load takes at most {_MAX_FILES:,} files", code="bad_load", hint="load them in parts")
    mode = body.get("mode") or "append"
    if mode not in MODES:
        raise InvalidInput(f"{str(mode)[:40]!r} is no mode", code="bad_load", hint="append or replace")
    columns = body.get("columns") or {}
    if not isinstance(columns, dict):
        raise InvalidInput("`columns` is an object of name and type", code="bad_columns", hint='{"amount": "long"}')
    parse_columns(columns)
    return CsvLoad(
        table=table_name(body.get("table", "")),
        files=tuple(files),
        mode=mode,
        options=_options(body),
        columns=columns,
        tolerance=parse_tolerance(body.get("max_bad")),
        source=_text(body, "source"),
        uploaded=body.get("uploaded") is True,
    )


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


def _options(body: Mapping[str, Any]) -> CsvOptions:
    given: dict[str, Any] = {}
    for name in ("delimiter", "quote", "escape", "encoding"):
        if (value := body.get(name)) is not None:
            if not isinstance(value, str):
                raise InvalidInput(f"`{name}` is a text", code="bad_csv_option")
            given[name] = "\t" if value in ("\\t", "tab") else value
    if given.get("encoding"):
        known_encoding(given["encoding"])
    if (header := body.get("header")) is not None:
        if not isinstance(header, bool):
            raise InvalidInput("`header` is true or false", code="bad_csv_option")
        given["header"] = header
    words = body.get("null_words") or []
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise InvalidInput("`null_words` is a list of texts", code="bad_csv_option", hint='["NA", "NULL"]')
    return CsvOptions(**given, null_words=tuple(words))


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str) or len(value) > 500:
        raise InvalidInput(f"`{name}` is a short text", code="bad_load")
    return value
