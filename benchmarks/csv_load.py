"""A made-up CSV file of orders: ten columns of mixed types, quoted texts, and now and then a record that is bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BAD_EVERY = 10_000
"""One record in so many is bad: by turns one with a quantity that its check refuses and one that lacks fields."""
_CHUNK_RECORDS = 100_000
_COUNTRIES = ("AT", "BE", "CH", "DE", "DK", "FI", "FR", "NO", "SE", "US")
_NOTES = (
    "leave it at the door",
    "call first",
    "fragile, this side up",
    'marked ""gift"", no invoice',
    "second floor, left",
)
_HEADER = b"order_id,customer,quantity,price,discount,ordered_on,shipped_at,is_gift,country,note\n"

COLUMNS: Mapping[str, Any] = {
    "quantity": {"type": "int", "checks": {"range": {"min": 1, "max": 1000}}},
    "country": {"type": "string", "checks": {"one_of": list(_COUNTRIES)}},
}
"""What is declared with the load: two columns with a check each. The types of the others are inferred."""

SPARK_SCHEMA = (
    "order_id BIGINT, customer STRING, quantity INT, price DECIMAL(9,2), discount DOUBLE, "
    "ordered_on DATE, shipped_at TIMESTAMP, is_gift BOOLEAN, country STRING, note STRING"
)
"""What Spark is told of the same file."""


@dataclass(frozen=True)
class CsvMade:
    path: Path
    rows: int
    """Good records."""
    bad: int

    @property
    def records(self) -> int:
        return self.rows + self.bad

    @property
    def size(self) -> int:
        return self.path.stat().st_size


def write_orders(path: Path, records: int) -> CsvMade:
    """A file of so many records, the bad ones among them."""
    bad = 0
    with path.open("wb") as file:
        file.write(_HEADER)
        for first in range(0, records, _CHUNK_RECORDS):
            count = min(_CHUNK_RECORDS, records - first)
            spoilt = count // BAD_EVERY
            file.write(_orders(first, count - spoilt))
            for number in range(spoilt):
                file.write(_bad_record(number))
            bad += spoilt
    return CsvMade(path, records - bad, bad)


def write_large(path: Path, size: int) -> CsvMade:
    """A file of at least so many bytes: the same chunk again and again, because to make one takes longer than to load
    it."""
    rows = bad = 0
    chunk = _orders(0, _CHUNK_RECORDS)
    with path.open("wb") as file:
        file.write(_HEADER)
        while file.tell() < size:
            file.write(chunk)
            file.write(_bad_record(bad))
            rows, bad = rows + _CHUNK_RECORDS, bad + 1
    return CsvMade(path, rows, bad)


def _orders(first: int, count: int) -> bytes:
    """Lines of good records."""
    rng = np.random.default_rng([1, first])
    day = rng.integers(19_000, 20_000, count)
    cents = rng.integers(100, 10_000_000, count).tolist()
    shipped = pa.array(day * 86_400 + rng.integers(0, 500_000, count), mask=rng.random(count) < 0.1)
    fields = [
        _text(np.arange(first, first + count)),
        pc.binary_join_element_wise("c", _text(rng.integers(10**6, 10**7, count)), ""),
        _text(rng.integers(1, 1001, count)),
        pa.array([f"{whole // 100}.{whole % 100:02d}" for whole in cents], pa.string()),
        _text(np.round(rng.random(count), 4)),
        _text(pa.array(day.astype("int32")).cast(pa.date32())),
        pc.fill_null(pc.strftime(shipped.cast(pa.timestamp("s")), "%Y-%m-%dT%H:%M:%SZ"), ""),
        _text(pa.array(rng.random(count) < 0.2)),
        pa.array(_COUNTRIES).take(pa.array(rng.integers(0, len(_COUNTRIES), count))),
        pc.binary_join_element_wise(
            '"', pa.array(_NOTES).take(pa.array(rng.integers(0, len(_NOTES), count))), '"\n', ""
        ),
    ]
    return "".join(pc.binary_join_element_wise(*fields, ",").to_pylist()).encode()


def _text(values: Any) -> pa.Array:
    return pc.cast(pa.array(values), pa.string())


def _bad_record(number: int) -> bytes:
    if number % 2:
        return b"1,c1000000,1\n"
    return b'1,c1000000,0,1.00,0.5,2022-01-02,2022-01-03T04:05:06Z,false,DE,"none, so far"\n'
