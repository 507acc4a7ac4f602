"""JSON and NDJSON, the exact way: every event is checked field by field, and every bad one is reported.

`decode_fast` takes the usual bodies; what it does not take comes here, so this is the path that decides.
"""

from __future__ import annotations

import io
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

import pyarrow as pa

from frazil.errors import InvalidInput
from frazil.events.declaration.column_types import NAME, TIMESTAMP, ColumnType
from frazil.events.declaration.table_spec import EXTRA, PATCH, TableSpec
from frazil.events.decoding.envelope import DELETE, ENVELOPE, ENVELOPE_CONVERTERS, PATCH_OP, TEXTS, assemble, to_op
from frazil.events.decoding.inferred_columns import new_columns
from frazil.events.decoding.json_text import JsonRefused, Wrong, compact, decoder, depth, described, shown
from frazil.events.decoding.json_values import INT, Convert, converter, shown_name
from frazil.events.decoding.limits import (
    Limits,
    Problems,
    check_event_count,
    empty_batch,
    event_too_large,
    names_hint,
    too_deep,
    too_many_fields,
)

BOM = b"\xef\xbb\xbf"
_SPACE = " \t\n\r"
_LONG = ColumnType("long")


def decode_exact(
    body: bytes, lines: bool, spec: TableSpec, *, received_at: datetime, limits: Limits
) -> tuple[pa.RecordBatch, TableSpec]:
    """All events of the body, or `BadEvents` that names the bad ones. `lines`: NDJSON, not one JSON object."""
    problems = Problems()
    judge = _Judge(spec, problems, limits)
    count = 0
    # One by one: what an event is parsed into takes up to thirty times its text.
    for event in (_events_of_lines if lines else _events_of_object)(body.removeprefix(BOM), problems, limits):
        judge.take(count, event)
        count += 1
    problems.raise_if_any(count)
    if not count:
        raise empty_batch()
    return judge.batch(count, received_at)


def _events_of_lines(body: bytes, problems: Problems, limits: Limits) -> Iterator[Any]:
    index = 0
    for number, raw in enumerate(io.BytesIO(body), 1):
        line = raw.strip(b" \t\r\n")
        if not line:
            continue
        check_event_count(index + 1, limits)
        if len(line) > limits.max_event_bytes:
            raise event_too_large(index, len(line), limits)
        event: Any = None
        try:
            event = decoder.decode(line.decode())
        except UnicodeDecodeError as error:
            problems.add(index, "", f"line {number} is not UTF-8 (byte {error.start + 1})")
        except json.JSONDecodeError as error:
            problems.add(index, "", f"line {number} is not valid JSON: {error.msg} (character {error.pos + 1})")
        except RecursionError as error:
            raise too_deep(index, limits) from error
        else:
            _check_depth(index, event, line.count(b"{") + line.count(b"["), limits)
            if event is None:
                problems.add(index, "", "an event must be an object, got null")
        yield event
        index += 1


def _events_of_object(body: bytes, problems: Problems, limits: Limits) -> Iterator[Any]:
    """The elements of `{"events": […]}`, read one by one so that each has its size and its index."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the body is not UTF-8 (byte {error.start + 1})", code="invalid_json", hint="encode the JSON as UTF-8"
        ) from error
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        kind = {"[": "a list", "": "empty"}.get(text[at : at + 1], "not an object")
        _refuse_body(f"the body is {kind}")
    at = _skip(text, at + 1)
    seen = False
    while text[at : at + 1] != "}":
        try:
            key, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            _broken(text, at, None)
        if type(key) is not str:
            _broken(text, at, None)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            _broken(text, at, None)
        if key != "events":
            _refuse_body(f"the body has the unknown field {shown(key)}; only `events` is allowed")
        if seen:
            _refuse_body("the body has `events` twice")
        seen = True
        at = _skip(text, at + 1)
        if text[at : at + 1] != "[":
            _refuse_body("`events` is not a list")
        at = yield from _elements(text, at + 1, problems, limits)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] != '"':
                _broken(text, at, None)
        elif text[at : at + 1] != "}":
            _broken(text, at, None)
    if not seen:
        _refuse_body("the body has no `events`")
    if _skip(text, at + 1) != len(text):
        _broken(text, at + 1, None)


def _elements(text: str, at: int, problems: Problems, limits: Limits) -> Generator[Any, None, int]:
    """Yields the elements of a list that begins before `at`; returns where it ended."""
    index = 0
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        check_event_count(index + 1, limits)
        try:
            event, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            _broken(text, error.pos, index, error.msg)
        except RecursionError as error:
            raise too_deep(index, limits) from error
        if (end - at) * 4 > limits.max_event_bytes:
            size = len(text[at:end].encode(errors="surrogatepass"))
            if size > limits.max_event_bytes:
                raise event_too_large(index, size, limits)
        _check_depth(index, event, text.count("{", at, end) + text.count("[", at, end), limits)
        if event is None:
            problems.add(index, "", "an event must be an object, got null")
        yield event
        index += 1
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return at + 1
        if text[at : at + 1] != ",":
            _broken(text, at, index)
        at = _skip(text, at + 1)


def _check_depth(index: int, event: Any, openers: int, limits: Limits) -> None:
    # An event is never deeper than it has opening brackets, and counting those is cheap.
    if openers > limits.max_depth and depth(event) > limits.max_depth:
        raise too_deep(index, limits)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _refuse_body(what: str) -> NoReturn:
    raise InvalidInput(
        what, code="invalid_body", hint='send {"events": [{"data": {…}}, …]}, or one event per line as NDJSON'
    )


def _broken(text: str, at: int, index: int | None, why: str = "invalid syntax") -> NoReturn:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    where = "" if index is None else f", in event {index}"
    raise InvalidInput(
        f"the body is not valid JSON: {why} (line {line}, character {column}{where})",
        code="invalid_json",
        hint="nothing was stored; check that the body is complete and its text is escaped as in JSON",
        details=None if index is None else [{"index": index, "field": "", "reason": why}],
    )


class _Judge:
    """Takes events one by one into columns; what is wrong with them goes to `problems`."""

    def __init__(self, spec: TableSpec, problems: Problems, limits: Limits) -> None:
        self._spec = spec
        self._problems = problems
        self._limits = limits
        self._converters = {name: self._converter(column.type) for name, column in spec.columns.items()}
        self._required = [name for name, column in spec.columns.items() if column.required]
        self._envelope_converters: dict[str, Convert] = {**ENVELOPE_CONVERTERS, "op": to_op(spec)}
        self._envelope: dict[str, dict[int, Any]] = {name: {} for name in self._envelope_converters}
        self._columns: dict[str, dict[int, Any]] = {name: {} for name in spec.columns}
        self._extra: dict[int, str] = {}
        self._new: dict[str, dict[int, Any]] = {}
        self._patches: dict[int, list[str]] = {}

    def _converter(self, wanted: ColumnType) -> Convert:
        # A table that evolves widens int to long where a value needs it, so long is what its ints are read as.
        evolves = self._spec.unknown_fields == "evolve"
        return converter(_LONG if evolves and wanted.kind == "int" else wanted)

    def take(self, index: int, event: Any) -> None:
        if event is None:
            return  # reported where it was read
        if type(event) is not dict:
            reason = (
                event.reason if type(event) is JsonRefused else f"an event must be an object, got {described(event)}"
            )
            self._problems.add(index, "", reason)
            return
        for name, value in event.items():
            if name == "data":
                continue
            convert = self._envelope_converters.get(name)
            if convert is None:
                reason = f"unknown field of an event, {names_hint(name, ENVELOPE)}"
                if name in self._converters:
                    reason = "unknown field of an event; columns of the table must be inside `data`"
                self._problems.add(index, shown_name(name), reason)
            elif value is not None:
                self._keep(index, name, self._envelope[name], convert, value)
        self._take_data(index, event.get("data"))

    def _take_data(self, index: int, data: Any) -> None:
        if type(data) is not dict:
            missing = "`data` is missing; it must contain the columns of the event"
            wrong = f"expected an object, got {described(data)}"
            self._problems.add(
                index, "data", missing if data is None else data.reason if type(data) is JsonRefused else wrong
            )
            return
        if len(data) > self._limits.max_fields:
            raise too_many_fields(index, len(data), self._limits)
        unknown: dict[str, Any] = {}
        for name, value in data.items():
            convert = self._converters.get(name)
            if convert is None:
                unknown[name] = value
            elif value is not None:
                self._keep(index, f"data.{name}", self._columns[name], convert, value)
        op = self._envelope["op"].get(index)
        for name in self._required:
            if data.get(name) is None and self._is_needed(name, data, op):
                self._problems.add(index, f"data.{name}", "required, but missing or null")
        if unknown:
            self._take_unknown(index, unknown)
        if op == PATCH_OP:
            self._patches[index] = self._given(index, data)

    def _is_needed(self, name: str, data: Mapping[str, Any], op: str | None) -> bool:
        """A delete needs the key only; a patch needs it too, and may leave other fields out, but not take them away."""
        if op not in (DELETE, PATCH_OP) or name in self._spec.key:
            return True
        return op == PATCH_OP and name in data

    def _given(self, index: int, data: Mapping[str, Any]) -> list[str]:
        """The columns that a patch sets. Fields that no column was declared for are one column, `_extra`."""
        known = [name for name in data if name in self._converters and name not in self._spec.key]
        new = [name for name, values in self._new.items() if index in values]
        return known + new + ([EXTRA] if index in self._extra else [])

    def _keep(self, index: int, path: str, column: dict[int, Any], convert: Convert, value: Any) -> None:
        try:
            column[index] = convert(value)
        except Wrong as wrong:
            self._problems.add(index, path + wrong.path, wrong.reason)

    def _take_unknown(self, index: int, unknown: Mapping[str, Any]) -> None:
        policy = self._spec.unknown_fields
        if policy == "keep":
            self._keep(index, "data", self._extra, compact, dict(unknown))
            return
        for name, value in unknown.items():
            path = f"data.{shown_name(name)}"
            if policy == "reject":
                self._problems.add(index, path, f"unknown field, {names_hint(name, list(self._converters))}")
            elif not NAME.match(name):
                self._problems.add(
                    index, path, "not a column name: use a-z, 0-9 and _, beginning with a letter, at most 63 characters"
                )
            elif type(value) is JsonRefused:
                self._problems.add(index, path, value.reason)
            elif value is not None:
                self._new.setdefault(name, {})[index] = value

    def batch(self, count: int, received_at: datetime) -> tuple[pa.RecordBatch, TableSpec]:
        spec = self._spec
        added, columns = new_columns(self._new, self._problems)
        self._problems.raise_if_any(count)
        for name, column in spec.columns.items():
            if column.type.kind == "int" and _beyond_int(self._columns[name]):
                added[name] = replace(column, type=_LONG)
        if added:
            spec = spec.with_columns(added)
        columns |= self._columns
        if spec.unknown_fields == "keep":
            columns[EXTRA] = self._extra
        if spec.kind == "history":
            columns[PATCH] = self._patches
        types = {name: column.type.arrow for name, column in spec.columns.items()} | {EXTRA: pa.string()}
        types[PATCH] = pa.list_(pa.field("element", pa.string()))
        envelope_types = {"id": pa.string(), "op": pa.string(), "ts": TIMESTAMP} | {name: pa.string() for name in TEXTS}
        return assemble(
            spec,
            count,
            received_at=received_at,
            envelope=_arrays(self._envelope, envelope_types, count),
            columns=_arrays(columns, types, count),
        ), spec


def _beyond_int(values: Mapping[int, int]) -> bool:
    return bool(values) and (min(values.values()) < INT[0] or max(values.values()) > INT[1])


def _arrays(
    columns: Mapping[str, Mapping[int, Any]], types: Mapping[str, pa.DataType], count: int
) -> dict[str, pa.Array]:
    return {
        name: pa.array([values.get(index) for index in range(count)], types[name])
        for name, values in columns.items()
        if values and name in types
    }
