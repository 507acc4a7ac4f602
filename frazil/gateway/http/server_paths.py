"""Server paths: paths of this machine in what is answered, which only admins are shown.

Errors name files, because whoever runs the place wants to know which. For all others a path is cut down to the name of
the file.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from frazil.errors import FrazilError
from frazil.gateway.gateway import Gateway
from frazil.storage import local_path

_SHORTEST = 4
"""`/` and `/a` would be found in what is no path."""


class ServerPaths:
    def __init__(self, roots: Iterable[str]) -> None:
        found = sorted({root.rstrip("/") for root in roots}, key=len, reverse=True)
        either = "|".join(re.escape(root) for root in found if len(root) >= _SHORTEST)
        # A path ends where words go on; a scheme before it belongs to it.
        self._path = (
            re.compile(rf"(?:file:(?://)?)?(?:{either})(?![\w.-])(?:/[^\s'\"`<>|,;:()\[\]{{}}]*)?") if either else None
        )

    @classmethod
    def of(cls, gateway: Gateway) -> ServerPaths:
        """The folders that this gateway and its pipeline know."""
        warehouse = gateway.lake.warehouse
        folders = [Path(tempfile.gettempdir()), Path.home(), Path(sys.prefix), Path(__file__).parents[3]]
        folders += [path.parent for path in (gateway.uploads, gateway.pipeline_file) if path is not None]
        if warehouse.is_s3:
            return cls([warehouse.url, *map(str, folders)])
        return cls(str(path) for path in (*folders, local_path(warehouse.url), local_path(warehouse.url).parent))

    def hidden(self, value: Any) -> Any:
        """A JSON value in which paths have become names of files."""
        if isinstance(value, str):
            return self._path.sub(_name, value) if self._path is not None else value
        if isinstance(value, dict):
            return {key: self.hidden(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.hidden(part) for part in value]
        return value

    def hide(self, error: FrazilError) -> None:
        error.message, error.hint = self.hidden(error.message), self.hidden(error.hint)
        error.details = self.hidden(error.details)


def _name(found: re.Match[str]) -> str:
    return f"…/{found[0].rstrip('/').rpartition('/')[2]}"
