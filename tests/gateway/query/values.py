"""Values of every declared type, the awkward ones among them, and how each must come back in each format."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_LETTERS = "aZ9 ,;\"'\n\r\t\\/%_<>{}[]\u00e9\u4e2d\U0001f9ca\u202e\u0001"


def _text(lucky: random.Random) -> str:
    return "".join(lucky.choice(_LETTERS) for _ in range(lucky.randint(0, 12)))


def _long(lucky: random.Random) -> int:
    return lucky.choice([0, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), lucky.getrandbits(62)])


def _double(lucky: random.Random) -> float:
    wide: float = struct.unpack("<d", struct.pack("<Q", lucky.getrandbits(64)))[0]
    return lucky.choice([0.0, -0.0, 0.1, 1e-320, 1.7976931348623157e308, float("inf"), float("-inf"), wide])


def _float(lucky: random.Random) -> float:
    single: float = struct.unpack("<f", struct.pack("<f", lucky.uniform(-1e30, 1e30)))[0]
    return lucky.choice([0.0, 1.5, single])


def _decimal(lucky: random.Random) -> Decimal:
    digits = lucky.choice([0, 1, -1, 10**38 - 1, -(10**38) + 1, lucky.getrandbits(120)])
    return Decimal(f"{digits}E-10")  # by its text: arithmetic would round to 28 digits


def _moment(lucky: random.Random) -> datetime:
    start = datetime(1, 1, 1, tzinfo=UTC)
    return start + timedelta(microseconds=lucky.randrange(0, 9998 * 365 * 86_400_000_000))


def _day(lucky: random.Random) -> date:
    return date(1, 1, 1) + timedelta(days=lucky.randrange(0, 9998 * 365))


# Type, how a value is made, and how it is written in JSON on the way in and in JSON on the way out.
_Made = Callable[[random.Random], Any]
_Told = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _number(value: float) -> Any:
    if value != value:
        return "NaN"
    return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value, value)


def _zulu(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _moments(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"x": _zulu(value["x"]), "y": value["y"]} for value in values]


TYPES: dict[str, tuple[str, _Made, _Told, _Told]] = {
    "s": ("string", _text, _same, _same),
    "b": ("bool", lambda lucky: lucky.random() < 0.5, _same, _same),
    "i": ("int", lambda lucky: lucky.choice([0, -(2**31), 2**31 - 1]), _same, _same),
    "l": ("long", _long, _same, _same),
    # A float is told by the fewest digits that name it among floats.
    "f": ("float", _float, _same, lambda value: float(str(np.float32(value)))),
    "d": ("double", _double, _number, _number),
    "n": ("decimal(38,10)", _decimal, lambda value: f"{value:f}", lambda value: f"{value:f}"),
    "day": ("date", _day, date.isoformat, date.isoformat),
    "ts": ("timestamp", _moment, _zulu, _zulu),
    "bin": (
        "binary",
        lambda lucky: lucky.randbytes(lucky.randint(0, 9)),
        lambda value: base64.b64encode(value).decode(),
        lambda value: base64.b64encode(value).decode(),
    ),
    "j": (
        "json",
        lambda lucky: {"k": [lucky.randint(0, 9), None, "é"]},
        _same,
        lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    ),
    "li": ("list<long>", lambda lucky: [_long(lucky), None], _same, _same),
    "st": ("struct<a:int,b:string>", lambda lucky: {"a": lucky.randint(0, 9), "b": _text(lucky)}, _same, _same),
    "m": (
        "map<string,decimal(20,3)>",
        lambda lucky: {"k": Decimal(f"{lucky.getrandbits(40)}E-3"), "z": None},
        lambda value: {key: None if inner is None else f"{inner:f}" for key, inner in value.items()},
        lambda value: [[key, None if inner is None else f"{inner:f}"] for key, inner in value.items()],
    ),
    "ls": (
        "list<struct<x:timestamp,y:list<double>>>",
        lambda lucky: [{"x": _moment(lucky), "y": [0.5, None]}],
        _moments,
        _moments,
    ),
}


def some_rows(seed: int, count: int) -> list[dict[str, Any]]:
    lucky = random.Random(seed)
    rows = []
    for _ in range(count):
        row = {name: None if lucky.random() < 0.15 else make(lucky) for name, (_, make, _, _) in TYPES.items()}
        if row["d"] is not None and row["d"] != row["d"]:
            row["d"] = None
        rows.append(row)
    return rows


def _arrow_value(name: str, value: Any) -> Any:
    if name == "j":
        return TYPES["j"][3](value)
    return list(value.items()) if name == "m" else value


def sent(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as a producer writes them in JSON."""
    return [
        {name: None if row[name] is None else send(row[name]) for name, (_, _, send, _) in TYPES.items()}
        for row in rows
    ]


def check(rows: list[dict[str, Any]], answers: Mapping[str, bytes]) -> None:
    """Compare the answers, one for each format, with the rows that were sent."""
    told = [[None if row[name] is None else tell(row[name]) for name, (_, _, _, tell) in TYPES.items()] for row in rows]
    for number, (row, expected) in enumerate(zip(json.loads(answers["json"])["rows"], told, strict=True)):
        assert repr(row) == repr(expected), number
    lines = [list(json.loads(line).values()) for line in answers["ndjson"].split(b"\n") if line]
    assert repr(lines) == repr(told)
    _check_commas(answers["csv"].decode(), told)
    found = pa.ipc.open_stream(answers["arrow"]).read_all()
    for name in TYPES:
        expected = [None if row[name] is None else _arrow_value(name, row[name]) for row in rows]
        assert repr(_plain(found[name].to_pylist())) == repr(_plain(expected)), name


def _check_commas(text: str, told: list[list[Any]]) -> None:
    header, *found = list(csv.reader(io.StringIO(text, newline="")))
    assert header == list(TYPES)
    for row, expected in zip(found, told, strict=True):
        for name, cell, value in zip(TYPES, row, expected, strict=True):
            if value is None or value == "":
                assert cell == "", name
            elif isinstance(value, bool):
                assert cell == str(value).lower()
            elif isinstance(value, list | dict):
                assert json.loads(cell) == value, name
            elif isinstance(value, float):
                assert repr(float(cell)) == repr(value), name
            else:
                assert cell == str(value), name


def _plain(value: Any) -> Any:
    """The same with every time in the one UTC of the standard library, so that equal things are written alike."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, dict) else value
