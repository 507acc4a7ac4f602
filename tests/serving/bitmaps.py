"""Bitmaps of given ordinals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from frazil.serving import Bitmap


def bitmap_of(ordinals: Iterable[int], size: int) -> Bitmap:
    mask = np.zeros(size, dtype=np.bool_)
    mask[[*ordinals]] = True
    return Bitmap.of_mask(mask)
