"""Memory estimates: the most that decoding takes, computed before it is taken.

The numbers are measured: the growth of a process (VmHWM) while bodies of 16 MB become a batch and then the message of
it, divided by what is counted here; for usual events and for those that were made to take the most.
`tests/events/test_decode_memory.py` compares them again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil.events.declaration.table_spec import TableSpec
from frazil.events.decoding.arrow_size import Unpacked
from frazil.events.decoding.limits import Limits

# Long texts: the value, its copy in Arrow, in the batch and in the message [4.0 at most].
TEXT_BYTES = 4
# JSON as one object is a Python string first, which takes four bytes for each character if one of them is rare.
WIDE_TEXT_BYTES = 8
# A number, text, list or object of JSON [a list of short texts 72, of numbers 61, of empty lists 53].
VALUE_BYTES = 72
# The same in a table whose columns evolve, where values are kept until all types are known [150].
EVOLVED_BYTES = 150
# An event and its envelope beside their values, and each column of the table, given or not [160, and 25].
EVENT_BYTES, CELL_BYTES = 160, 32
# A line of NDJSON, blank or not: where it ends.
LINE_BYTES = 9
# What is unpacked of an Arrow stream: itself, cast to the types of the table and compared, in the batch [vectors 6].
UNPACKED_BYTES = 6
# The metadata of an Arrow stream becomes objects of Arrow and of Python.
METADATA_BYTES = 8
# A value of Arrow as an object of Python [45 for numbers], and its text.
OBJECT_BYTES, OBJECT_TEXT_BYTES = 72, 4
_CHUNK = 1 << 20
_COMMA, _BRACE, _BRACKET, _NEWLINE = b",{[\n"


def json_memory(body: bytes, lines: bool, spec: TableSpec, limits: Limits) -> int:
    """Bytes that JSON or NDJSON takes to decode, whichever path it takes."""
    commas, braces, brackets, newlines = _counts(body)
    columns = len(spec.columns)
    events = min(braces // 2 + 1, limits.max_events)
    text = TEXT_BYTES if lines or body.isascii() else WIDE_TEXT_BYTES
    values = (commas + braces + brackets) * (EVOLVED_BYTES if spec.unknown_fields == "evolve" else VALUE_BYTES)
    # The values of the event at hand are there twice: as they were parsed, and as their columns want them.
    values += values * min(len(body), limits.max_event_bytes) // max(1, len(body))
    return len(body) * text + values + events * (EVENT_BYTES + columns * CELL_BYTES) + newlines * LINE_BYTES


def _counts(body: bytes) -> tuple[int, ...]:
    characters = np.frombuffer(body, np.uint8)
    counts = [0, 0, 0, 0]
    # In chunks that stay in the processor's cache.
    for start in range(0, len(body), _CHUNK):
        chunk = characters[start : start + _CHUNK]
        for at, character in enumerate((_COMMA, _BRACE, _BRACKET, _NEWLINE)):
            counts[at] += int(np.count_nonzero(chunk == character))
    return tuple(counts)


def arrow_memory(unpacked: Unpacked, columns: int) -> int:
    """Bytes that an Arrow stream takes for a table of so many columns; those that are absent become nulls."""
    return (
        unpacked.size * UNPACKED_BYTES
        + unpacked.metadata * METADATA_BYTES
        + unpacked.rows * (EVENT_BYTES + columns * CELL_BYTES // 2)
    )


def python_memory(array: pa.Array) -> int:
    """Bytes that the values take as objects of Python, with the texts that are made of them."""
    return int(array.nbytes) * OBJECT_TEXT_BYTES + _values(array) * OBJECT_BYTES


def _values(array: pa.Array) -> int:
    """Values of the array and of what is nested in it."""
    if isinstance(array, pa.StructArray):
        return len(array) + sum(_values(child) for child in array.flatten())
    if isinstance(array, pa.MapArray):
        return len(array) + _values(array.keys) + _values(array.items)
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return len(array) + _values(array.flatten())
    return len(array)
