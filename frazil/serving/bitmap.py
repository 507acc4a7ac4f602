"""Bitmap of ordinals: the chunks of an artifact that a search may answer with. One bit each, the lowest bit first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]
Ordinals = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bitmap:
    """Ordinals below `size`. Immutable: the array is read-only, and each operation makes a new bitmap."""

    size: int
    packed: Bits
    """`(size + 7) // 8` bytes; ordinal i is bit `i % 8` of byte `i // 8`, as faiss reads it. Bits beyond are zero."""
    count: int

    @classmethod
    def of_mask(cls, mask: npt.NDArray[np.bool_]) -> Bitmap:
        return cls._sealed(len(mask), np.packbits(mask, bitorder="little"))

    @classmethod
    def of_packed(cls, packed: bytes, size: int) -> Bitmap:
        """A bitmap that somebody else has packed; `ValueError` if it is not one of this size."""
        if len(packed) != (size + 7) // 8 or (size % 8 and packed[-1] >> (size % 8)):
            raise ValueError(f"{len(packed)} bytes are no bitmap of {size}")
        return cls._sealed(size, np.frombuffer(packed, np.uint8).copy())

    @classmethod
    def full(cls, size: int) -> Bitmap:
        return cls.of_mask(np.ones(size, dtype=np.bool_))

    @classmethod
    def empty(cls, size: int) -> Bitmap:
        return cls.of_mask(np.zeros(size, dtype=np.bool_))

    @classmethod
    def _sealed(cls, size: int, packed: Bits) -> Bitmap:
        packed.flags.writeable = False
        return cls(size, packed, int(np.bitwise_count(packed).sum()))

    @property
    def share(self) -> float:
        """How much of all ordinals is in the set; 1 for a bitmap of nothing."""
        return self.count / self.size if self.size else 1.0

    def mask(self) -> npt.NDArray[np.bool_]:
        return np.unpackbits(self.packed, count=self.size, bitorder="little").view(np.bool_)

    def ordinals(self) -> Ordinals:
        """The members, ascending."""
        return np.flatnonzero(self.mask())

    def holds(self, ordinals: Ordinals) -> npt.NDArray[np.bool_]:
        """For each of these ordinals, all below `size`: is it a member?"""
        bits: npt.NDArray[np.bool_] = (self.packed[ordinals >> 3] >> (ordinals & 7).astype(np.uint8) & 1).astype(
            np.bool_
        )
        return bits

    def __contains__(self, ordinal: int) -> bool:
        return 0 <= ordinal < self.size and bool(self.packed[ordinal >> 3] >> (ordinal & 7) & 1)

    def __and__(self, other: Bitmap) -> Bitmap:
        self._like(other)
        return self._sealed(self.size, self.packed & other.packed)

    def __or__(self, other: Bitmap) -> Bitmap:
        self._like(other)
        return self._sealed(self.size, self.packed | other.packed)

    def __sub__(self, other: Bitmap) -> Bitmap:
        self._like(other)
        return self._sealed(self.size, self.packed & ~other.packed)

    def __invert__(self) -> Bitmap:
        return self.of_mask(~self.mask())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bitmap) and self.size == other.size and bool((self.packed == other.packed).all())

    def __hash__(self) -> int:
        return hash((self.size, self.packed.tobytes()))

    def _like(self, other: Bitmap) -> None:
        if self.size != other.size:
            raise ValueError(f"bitmaps of {self.size} and of {other.size} ordinals are of different artifacts")
