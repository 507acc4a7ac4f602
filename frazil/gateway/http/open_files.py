"""Open files: the limit of the process, raised as far as it is needed, and the connections that fit below it."""

from __future__ import annotations

import resource

RESERVED_FILES = 512
"""Files kept free of connections: query workers, bus, catalog, artifacts, spill files, uploads."""


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit to `wanted`, or as near as the hard limit allows; the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if reachable > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        return reachable
    return soft


def connections_within(files: int, wanted: int) -> int:
    """How many connections may be open with this limit on files: at least half of them are for connections."""
    return min(wanted, files - min(RESERVED_FILES, files // 2))
