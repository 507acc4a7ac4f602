"""The fast path gives what the exact path gives, or leaves the body to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.events.decoding import Limits
from tests.events.bodies import both_paths, ndjson, table

SPEC = table(
    {
        "s": "string",
        "b": "bool",
        "i": "int",
        "l": "long",
        "f": "float",
        "d": "double",
        "m": "decimal(6,2)",
        "dt": "date",
        "at": "timestamp",
        "bin": "binary",
        "j": "json",
        "li": "list<long>",
        "st": "struct<x:int,y:list<string>>",
        "mp": "map<string,double>",
    }
)
NUMBERS = [
    *("0 -0 1 -1 1.0 1.5 1e3 1E+2 1e-1 2147483647 2147483648 9223372036854775807 9223372036854775808").split(),
    *("9007199254740993 0.1 -0.0 1e400 1e-400 3.4028235e38 3.5e38 1.005 12345.67 5e-324 16777217").split(),
    *("01 +1 .5 1. NaN Infinity -Infinity 0e9999999999 -9223372036854775809").split(),
]
TEXTS = [
    *("", "x", "1.5", "NaN", "insert", "aGk=", "aGk", "é", "😀", ":", ":x", '":', '" :', '"', "\\", "}\n{", "{", "["),
    *("2024-05-01", "0000-01-01", "2024-02-30", "2024-05-01T00:00:00Z", "2024-05-01T00:00:00.5Z"),
    *("2024-05-01T00:00:00.123456Z", "2024-05-01T00:00:00.1234567Z", "2024-05-01T00:00:00+02:00"),
    *("2024-05-01 00:00:00Z", "2024-05-01t00:00:00z", "2024-05-01T00:00:00", "2024-05-01T00:00Z"),
    *("2024-05-01T24:00:00Z", "2024-05-01T23:59:60Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
    *(
        "2024-05-01T00:00:00+0200",
        "2024-05-01T00:00:00.12+05Z",
        "+1.5",
        ".5",
        "5.",
        "1_0",
        " 1",
        "1e2",
        "\0",
        "z" * 257,
    ),
]
NESTED = [
    *("[]", "{}", "[1]", "[1,null]", '["a"]', '{"x":1}', '{"x":1,"y":["a",null]}', '{"x":1,"x":2}', '{"x" :1}'),
    *('{"z":1}', '{"k":1.5,"k2":null}', '{"a":{"b":[1,{"c":2}]}}', '[{"a":1},{"a":1}]', '{"a b!":1}', '{"a\\\\":1}'),
]
VALUE = st.sampled_from(
    [*NUMBERS, *map(json.dumps, TEXTS), *NESTED, "null", "true", "false", '"\\ud800"', '"\\udc00"', '"\t"', "nul", '"x']
)
FITTING = {
    "s": st.sampled_from(['"x"', '"é"', '"a\\":b"', '":x"', '"\\u0041"', '"x\\" :"']),
    "b": st.sampled_from(["true", "false"]),
    "i": st.sampled_from(["1", "-5", "2147483647"]),
    "l": st.sampled_from(["9007199254740993", "0", "-9223372036854775808"]),
    "f": st.sampled_from(["0.1", "1", "3e38"]),
    "d": st.sampled_from(["0.1", "1e300", "-0.0", "-0", "7"]),
    "m": st.sampled_from(["1.5", "1", '"9.99"', "-0.01"]),
    "dt": st.sampled_from(['"2024-05-01"', '"0001-01-01"']),
    "at": st.sampled_from(['"2024-05-01T00:00:00.5Z"', '"2024-05-01T00:00:00+02:00"', '"2024-05-01T00:00:00Z"']),
    "bin": st.just('"aGk="'),
    "j": st.sampled_from(['{"a":1,"b":[1.50,null]}', '"x"', "1e400", '{"q\\":":1}']),
    "li": st.sampled_from(["[1,2]", "[]"]),
    "st": st.sampled_from(['{"x":1,"y":["a"]}', "{}"]),
    "mp": st.sampled_from(['{"k":1}', '{"a-b":0.5}']),
}
ENVELOPE = {
    "id": st.sampled_from(['"e1"', '"e2"', "null", '""', '"' + "i" * 257 + '"', "1"]),
    "op": st.sampled_from(['"insert"', "null", '"delete"']),
    "ts": FITTING["at"],
    "actor": st.sampled_from(['"x"', '""', "null"]),
}


@st.composite
def members(draw: st.DrawFn, choices: dict[str, st.SearchStrategy[str]], odd: bool) -> str:
    names = draw(st.lists(st.sampled_from(list(choices)), max_size=8, unique=not odd or draw(st.booleans())))
    parts = []
    for name in names:
        wild = odd and draw(st.integers(0, 9)) == 0
        value = draw(VALUE if wild else st.one_of(choices[name], st.just("null")))
        colon = draw(st.sampled_from([":", ": ", " :", ":\n"])) if odd and draw(st.integers(0, 19)) == 0 else ":"
        parts.append(f'"{name}"{colon}{value}')
    return ",".join(parts)


@st.composite
def events(draw: st.DrawFn) -> list[str]:
    odd = draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(1, 3))):
        envelope = draw(members(ENVELOPE, odd))
        data = draw(members(FITTING, odd))
        found.append(f'{{{envelope}{"," if envelope else ""}"data":{{{data}}}}}')
    return found


LIMITS = st.sampled_from([Limits()] * 4 + [Limits(max_event_bytes=90), Limits(max_depth=4), Limits(max_events=1)])


@settings(max_examples=150)
@given(events(), LIMITS)
def test_both_paths_agree_on_ndjson(given_events: list[str], limits: Limits) -> None:
    both_paths("\n".join(given_events).encode(), True, SPEC, limits)


@settings(max_examples=150)
@given(events(), LIMITS)
def test_both_paths_agree_on_json(given_events: list[str], limits: Limits) -> None:
    both_paths(('{"events":[' + ",".join(given_events) + "]}").encode(), False, SPEC, limits)


SPLINTERS = st.sampled_from(
    [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"\n",
        b" ",
        b"\r\n",
        b"null",
        b",",
        b":",
        b"{}",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\0",
        b'"d":1,',
        b'" :',
        b"\xff",
        b"e",
        b"-",
        b"0",
        b"]",
        b"[",
    ]
)


@settings(max_examples=150)
@given(st.data(), events(), st.booleans())
def test_both_paths_agree_on_damaged_bodies(data: st.DataObject, given_events: list[str], lines: bool) -> None:
    text = "\n".join(given_events) if lines else '{"events":[' + ",".join(given_events) + "]}"
    body = text.encode()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        cut = data.draw(st.integers(0, 3))
        body = body[:at] + data.draw(SPLINTERS) + body[at + cut :]
    both_paths(body, lines, SPEC)


@pytest.mark.parametrize(
    ("body", "taken_by"),
    [
        (b'{"id":"a","data":{"l":1,"s":"x"}}\n{"id":"b","data":{}}\n', "fast"),
        (b'{"id":"a","data":{"l":1}}\r\n{"id":"b","data":{}}\r\n', "fast"),
        (b'{"data":{"j":{"k":1,"k2":{"k":1}},"m":"1.5"}}', "fast"),
        (b'{"data":{"s":"says \\"hi\\" : twice","l":1}}', "exact"),  # looks like a key with a space behind it
        (b'{"data":{"l":1}}\n\n{"data":{"l":2}}', "exact"),
        (b'{"data":{"d":"NaN"}}', "exact"),
        (b'{"data":{"l":1e3}}', "exact"),
        (b'{"data" :{"l":1}}', "exact"),
        (b'{"data":{"l":1,"l":1}}', "refused"),
        (b'{"data":{"l":1,"l" :1}}', "refused"),
        (b'{"data":{"l":null,"l":1}}', "refused"),
        (b'{"data":{"l":1,"\\u006c":1}}', "refused"),
        (b'{"data":{"s":"x","s":":x"}}', "refused"),
        (b'{"data":{},"data":{}}', "refused"),
        (b'{"data":{"j":{"a":1,"a":2}}}', "refused"),
        (b'{"data":{}}{"data":{}}', "refused"),
        (b'{"data":\n{}}\n{"data":{}}{"data":{}}', "refused"),
        (b"null", "refused"),
        (b'{"data":{}}\nnull\n{"data":{}}', "refused"),
        (b'{"data":{"nope":1}}', "refused"),
        (b'{"data":{"at":"2024-05-01T00:00:00"}}', "refused"),
    ],
)
def test_who_takes_what(body: bytes, taken_by: str) -> None:
    assert both_paths(body, True, SPEC) == taken_by


def test_an_empty_list_of_events_given_twice_is_seen() -> None:
    assert both_paths(b'{"events":[],"events":[{"data":{}}]}', False, SPEC) == "refused"
    assert both_paths(b'{"events":[{"data":{}}]}', False, SPEC) == "fast"


def test_large_bodies_stay_fast_and_keys_are_counted_across_chunks() -> None:
    events: list[Any] = [{"id": f"e{i}", "data": {"s": "x" * (i % 300), "l": i}} for i in range(12_000)]
    body = ndjson(events).replace(b": ", b":")
    assert len(body) > 2 << 20
    assert both_paths(body, True, SPEC) == "fast"
    assert both_paths(b'{"events":[' + b",".join(body.splitlines()) + b"]}", False, SPEC) == "fast"
    twice = body.replace(b'{"id":"e9000",', b'{"id":"e9000","id":"e9000",')
    assert twice != body
    assert both_paths(twice, True, SPEC) == "refused"
