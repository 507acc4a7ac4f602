"""Named crash points: the places where a kill is interesting, so that tests can kill exactly there.

`FRAZIL_CRASH_AT=name` (or `name:3` for the third time) makes the process kill itself with SIGKILL at that point.
`FRAZIL_PAUSE_AT=name` makes it stop itself (SIGSTOP) instead, once, until a test wakes it. Neither is set in
production, where a crash point costs one dictionary look-up.

`FRAZIL_CRASH_TRACE=folder` gets a file of the point's name when it is reached, which says so to the test. A point whose
file is there does nothing: a supervisor hands its environment on to the part that it starts again.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_armed: dict[str, tuple[int, signal.Signals]] = {}
for _variable, _signal in (("FRAZIL_CRASH_AT", signal.SIGKILL), ("FRAZIL_PAUSE_AT", signal.SIGSTOP)):
    if _spec := os.environ.get(_variable):
        _name, _, _nth = _spec.partition(":")
        _armed[_name] = (int(_nth or 1), _signal)
_hits: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Mark a place in the code where tests kill or pause the process."""
    if not _armed or name not in _armed:
        return
    _hits[name] += 1
    nth, what = _armed[name]
    if _hits[name] == nth and _leave_trace(name):
        os.kill(os.getpid(), what)


def _leave_trace(name: str) -> bool:
    """Leave a file that shows the test that the point was reached; False if the file exists already."""
    folder = os.environ.get("FRAZIL_CRASH_TRACE")
    if folder is None:
        return True
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, f"{os.getpid()}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
