"""Denied log: refused requests in the audit log, limited so that they cannot fill the disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from frazil.access.audit import AuditEntry, AuditLog

MAX_ADDRESSES = 100
_OTHERS = "others"


@dataclass
class _Second:
    number: int
    logged: int = 0
    left_out: int = 0


class DeniedLog:
    """Logs up to `per_second` refusals of one address, and the number of the rest.

    Above `MAX_ADDRESSES` in one second, further addresses are counted as one, named "others".
    """

    def __init__(self, audit: AuditLog, *, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._per_second = per_second
        self._clock = clock
        self._seconds: dict[str, _Second] = {}

    def note(self, entry: AuditEntry) -> None:
        address = entry.client or "unknown"
        if address not in self._seconds and len(self._seconds) >= MAX_ADDRESSES:
            address = _OTHERS
        number = int(self._clock())
        second = self._seconds.get(address)
        if second is not None and second.number == number and second.logged >= self._per_second:
            second.left_out += 1
            return
        self._log_counts(self._finished(number))
        self._seconds.setdefault(address, _Second(number)).logged += 1
        self._audit.append(replace(entry, action="denied"))

    def flush(self, *, closing: bool = False) -> None:
        """Log the counts of seconds that are over. To be called about once a second."""
        self._log_counts(self._finished(None if closing else int(self._clock())))

    def _log_counts(self, counts: dict[str, int]) -> None:
        for address, left_out in counts.items():
            self._audit.append(AuditEntry(action="denied", outcome="left_out", client=address, left_out=left_out))

    def _finished(self, current: int | None) -> dict[str, int]:
        over = {address: second for address, second in self._seconds.items() if second.number != current}
        for address in over:
            del self._seconds[address]
        return {address: second.left_out for address, second in over.items() if second.left_out}
