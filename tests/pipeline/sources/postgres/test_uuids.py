from __future__ import annotations

import uuid

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from frazil.pipeline.sources.postgres.uuids import printed


@given(st.lists(st.none() | st.uuids(), max_size=40), st.integers(0, 10), st.integers(0, 10))
def test_uuids_are_printed_as_python_prints_them(found: list[uuid.UUID | None], before: int, after: int) -> None:
    array = pa.array([one and one.bytes for one in found], pa.binary(16))
    expected = [one and str(one) for one in found]
    texts = printed(array)
    texts.validate(full=True)
    assert texts.to_pylist() == expected
    part = slice(before, max(before, len(found) - after))
    assert printed(array[part]).to_pylist() == expected[part]
