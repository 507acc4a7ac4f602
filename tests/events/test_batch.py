"""Batches on the bus: what goes in comes out, split where it must be, and a broken group counts for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import TooLarge
from frazil.events import (
    batch,
    complete_messages,
    conform,
    decode,
    encode,
    encode_parts,
    first_position,
    part_headers,
    rows,
)
from frazil.events.batch import GROUP, PART
from tests.flow.stream_model import Sent, counts, undecided_from


@dataclass(frozen=True)
class Stored:
    sequence: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def table(number: int, *, width: int = 1) -> pa.Table:
    # Text that does not compress, so that sizes mean something.
    text = [Random(i).randbytes(8 * width).hex() for i in range(number)]
    return pa.table({"_id": pa.array(text, pa.string()), "v": pa.array(range(number), pa.int64())})


def test_a_body_reads_back_as_it_was_written() -> None:
    events = pa.table({"a": pa.array([1, None], pa.int64()), "b": pa.array([["x"], None], pa.list_(pa.string()))})
    assert decode(encode(events.to_batches())).equals(events)


def test_several_batches_are_one_body() -> None:
    events = table(10)
    parts = [events.slice(0, 3).to_batches()[0], events.slice(3).to_batches()[0]]
    assert decode(encode(parts)).combine_chunks().equals(events)


@given(st.integers(1, 300), st.integers(2_000, 20_000))
def test_parts_fit_and_hold_all_rows_in_order(number: int, max_bytes: int) -> None:
    events = table(number, width=10)
    bodies = encode_parts(events, max_bytes=max_bytes)
    assert all(len(body) <= max_bytes for body in bodies)
    assert pa.concat_tables([decode(body) for body in bodies]).combine_chunks().equals(events)


def test_what_fits_is_one_part() -> None:
    assert len(encode_parts(table(100), max_bytes=1 << 20)) == 1


def test_a_message_holds_no_more_events_than_positions_can_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MAX_EVENTS_PER_MESSAGE", 8)
    bodies = encode_parts(table(20), max_bytes=1 << 20)
    assert [decode(body).num_rows for body in bodies] == [5, 5, 5, 5]


def test_one_event_larger_than_a_message_is_refused() -> None:
    with pytest.raises(TooLarge) as refused:
        encode_parts(table(3, width=1000), max_bytes=2000)
    assert refused.value.code == "event_too_large" and refused.value.hint


def test_headers_name_a_group_only_where_there_is_one() -> None:
    assert part_headers("g", 1) == [{}]
    assert [headers[PART] for headers in part_headers("g", 3)] == ["1/3", "2/3", "3/3"]


def stored(*parts: str) -> list[Stored]:
    """Messages from sequence 5 on, each written as `g1/3` (group g, part 1 of 3) or as `-`."""
    found = []
    for at, text in enumerate(parts):
        headers = {} if text == "-" else {GROUP: text[0], PART: text[1:]}
        found.append(Stored(5 + at, headers=headers))
    return found


@pytest.mark.parametrize(
    ("parts", "counted", "decided"),
    [
        ([], [], 0),
        (["-", "-"], [5, 6], 7),
        (["g1/2", "g2/2", "-"], [5, 6, 7], 8),
        (["-", "g1/2"], [5], 6),
        (["g1/3", "g2/3"], [], 5),
        (["g1/3", "g2/3", "-"], [7], 8),
        (["g1/2", "h1/2", "h2/2"], [6, 7], 8),
        (["g2/2", "-"], [6], 7),
        (["g2/2"], [], 6),
        (["g1/3", "g3/3"], [], 7),
        (["g1/2", "g2/2", "g1/2", "g2/2"], [5, 6, 7, 8], 9),
        (["g1/3", "g2/3", "g1/3", "g2/3", "g3/3"], [7, 8, 9], 10),
        (["g1/3", "g2/3", "g1/3", "g2/3"], [], 7),
        (["g1/2", "g2/3", "-"], [7], 8),
        (["g", "-"], [6], 7),
    ],
)
def test_a_group_counts_when_it_stands_there_whole(parts: list[str], counted: list[int], decided: int) -> None:
    found, below = complete_messages(stored(*parts))
    assert [delivery.sequence for delivery in found] == counted
    assert below == decided


messages = st.builds(
    lambda group, part, parts: Sent((), 0, (), group, min(part, parts), parts),
    st.sampled_from(["", "g", "h"]),
    st.integers(1, 3),
    st.integers(1, 3),
)


@given(st.lists(messages, max_size=12), st.integers(1, 12))
def test_it_counts_the_same_wherever_the_reads_end(stream: list[Sent], size: int) -> None:
    """Read in pages of any size, each beginning where the stream was undecided, as a committer does."""
    deliveries = [
        Stored(at + 1, headers={GROUP: m.group, PART: f"{m.part}/{m.parts}"} if m.group else {})
        for at, m in enumerate(stream)
    ]
    counted: list[int] = []
    decided, end = 1, 0
    while end < len(deliveries):
        end = min(end + size, len(deliveries))
        found, below = complete_messages(deliveries[decided - 1 : end])
        counted += [delivery.sequence for delivery in found]
        assert below >= decided
        decided = below
    assert counted == [at + 1 for at in range(len(stream)) if counts(stream, at)]
    assert decided == undecided_from(stream) or not stream


def test_rows_carry_their_position_in_the_stream() -> None:
    schema = pa.schema([pa.field("_seq", pa.int64(), nullable=False), ("_id", pa.string()), ("v", pa.int64())])
    deliveries = [Stored(7, encode(table(2).to_batches())), Stored(9, encode(table(1).to_batches()))]
    found = rows(deliveries, schema)
    assert found.schema.equals(schema)
    assert found["_seq"].to_pylist() == [first_position(7), first_position(7) + 1, first_position(9)]
    assert rows([], schema).num_rows == 0 and rows([], schema).schema.equals(schema)


def test_a_table_of_an_older_schema_is_widened_and_filled() -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("new", pa.string()), ("m", pa.decimal128(20, 2))])
    older = pa.table(
        {
            "m": pa.array(["1.25"], pa.string()).cast(pa.decimal128(9, 2)),
            "n": pa.array([7], pa.int32()),
            "x": pa.array([0.5], pa.float32()),
        }
    )
    found = conform(older, schema)
    assert found.schema.equals(schema)
    assert found["n"].to_pylist() == [7] and found["new"].to_pylist() == [None] and found["x"].to_pylist() == [0.5]
    assert str(found["m"][0].as_py()) == "1.25"


def test_a_table_that_is_right_already_is_not_copied() -> None:
    events = table(2)
    assert conform(events, events.schema) is events


def test_a_column_nobody_knows_is_an_error_and_a_lossy_cast_too() -> None:
    with pytest.raises(ValueError, match="surprise"):
        conform(pa.table({"surprise": [1]}), pa.schema([("v", pa.int64())]))
    with pytest.raises(pa.ArrowInvalid):
        conform(pa.table({"v": pa.array([2**40], pa.int64())}), pa.schema([("v", pa.int32())]))
