"""The size of an Arrow stream before it is read: what lies is refused, what is compressed is counted unpacked."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from frazil.events.decoding.arrow_size import measure
from tests.events.bodies import stream


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_buffers_values_and_rows_are_added_up(compression: str | None) -> None:
    rows = 100_000
    table = pa.table(
        {"n": pa.array([7] * rows, pa.int64()), "l": pa.array([[True, False]] * rows), "z": pa.nulls(rows)}
    )
    found = measure(stream(table, compression))
    plain = measure(stream(table))
    assert found.rows == rows and found.values == rows * 5
    assert abs(found.size - plain.size) < 1024 and plain.size >= table.nbytes


@pytest.mark.parametrize("lie", [-(1 << 40), -9, 1 << 40])
def test_a_buffer_that_lies_about_its_unpacked_size(lie: int) -> None:
    body = bytearray(stream(pa.table({"n": pa.array([7] * 100_000, pa.int64())}), "zstd"))
    declared = struct.pack("<q", 800_000)
    assert body.count(declared) == 1
    at = body.index(declared)
    body[at : at + 8] = struct.pack("<q", lie)
    if lie < 0:
        with pytest.raises(ValueError, match="negative"):
            measure(bytes(body))
    else:
        assert measure(bytes(body)).size >= lie


def test_a_negative_size_hides_nothing() -> None:
    """Taken as it stands, it would make up for a bomb that another batch of the stream holds."""
    body = bytearray(stream(pa.table({"n": pa.array(list(range(1003)), pa.int64())})))
    # In the metadata the length of the column's buffer follows its offset, which is 0.
    at = body.index(struct.pack("<qq", 0, 1003 * 8)) + 8
    body[at : at + 8] = struct.pack("<q", -(1 << 50))
    with pytest.raises(ValueError, match="negative size"):
        measure(bytes(body))
