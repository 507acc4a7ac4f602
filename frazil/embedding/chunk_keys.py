"""Chunk keys: a vector belongs to the chunk of the same document, number and content, wherever it is looked for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.events import Keys, id_keys

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def chunk_names(document: pa.Array, chunk: pa.Array, content: pa.Array) -> pa.Array:
    """Of each chunk (content, chunk, document); the document comes last, so that no two of them read alike."""
    return pc.binary_join_element_wise(content, chunk.cast(pa.string()), document, ":")


def keys_of_chunks(document: pa.Array, chunk: pa.Array, content: pa.Array) -> Keys:
    """The names, hashed for this process."""
    return id_keys(chunk_names(document, chunk, content))


def as_matrix(vectors: pa.ChunkedArray, dims: int) -> Floats:
    return np.asarray(pc.list_flatten(vectors).to_numpy(), dtype=np.float32).reshape(-1, dims)


class SortedKeys:
    """Keys in the order of their first half, and the places that they came from."""

    def __init__(self, keys: Keys) -> None:
        self._places = np.argsort(keys[:, 0], kind="stable")
        self._high, self._low = keys[self._places, 0], keys[self._places, 1]

    def find(self, keys: Keys) -> Ints:
        """The place of each key, the first of them; -1 where there is none."""
        found = np.full(len(keys), -1, np.int64)
        at = np.searchsorted(self._high, keys[:, 0])
        left = np.arange(len(keys))
        while len(left):
            left = left[at[left] < len(self._high)]
            left = left[self._high[at[left]] == keys[left, 0]]
            same = self._low[at[left]] == keys[left, 1]
            found[left[same]] = self._places[at[left[same]]]
            # Two keys that agree in their first half only: about never, and then the next one is looked at.
            left = left[~same]
            at[left] += 1
        return found
