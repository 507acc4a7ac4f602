"""Vault watch: one synchronisation after each burst of edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

from watchfiles import Change, watch

from frazil.errors import FrazilError
from frazil.vault.sync import SyncReport, VaultSync

_SETTLED_MS = 100
"""Quiet time after the last change; editors save by a temporary file and a rename."""
_LONGEST_MS = 1600
_AGAIN_MS = 5000


def follow(
    sync: VaultSync, root: Path, *, stop: Event | None = None, on_error: Callable[[FrazilError], None]
) -> Iterator[SyncReport]:
    """The report of each synchronisation that found something, until `stop` or Ctrl-C.

    Failures go to `on_error` and are tried again, every few seconds if nothing else happens. The state of the folder
    is compared, not the list of edits, so that no edit is missed however they are reported.
    """
    due = True  # what was edited before the watch began
    changed = watch(
        root,
        watch_filter=lambda change, path: _is_seen(root, change, path),
        debounce=_LONGEST_MS,
        step=_SETTLED_MS,
        rust_timeout=_AGAIN_MS,
        yield_on_timeout=True,
        stop_event=stop,
        raise_interrupt=True,
        ignore_permission_denied=True,
    )
    for edits in changed:
        if not edits and not due:
            continue
        try:
            report = sync.run()
            due = False
        except FrazilError as error:
            due = True
            on_error(error)
            continue
        if report.published:
            yield report


def _is_seen(root: Path, change: Change, path: str) -> bool:
    """Whether the path is not hidden: what editors and version control keep for themselves is."""
    try:
        parts = Path(path).relative_to(root).parts
    except ValueError:
        return True
    return not any(part.startswith(".") for part in parts)
