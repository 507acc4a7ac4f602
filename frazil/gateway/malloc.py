"""Allocator of the C library: large blocks go back to the system when they are freed.

glibc raises the size from which a block is mapped by itself to that of the largest block freed so far. Parts of bodies
then come from its heaps, where one small block that lives on keeps what is below it: after 40 bodies of 60 MB the
gateway kept 1 GB for good. With a fixed size it keeps nothing of them.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 256 << 10


def return_freed_memory() -> None:
    """Fix the size. Other C libraries have no such call and need none."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
