"""Publish state: the place up to which a file was published, so that the next run continues there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from frazil.cli.load.publish_source import SourcePlace
from frazil.runtime import read_json, write_json


class Progress:
    """The place up to which one source has been acknowledged.

    If it is lost, events are sent again under the same ids.
    """

    def __init__(self, folder: Path, identity: str, *, keep: bool) -> None:
        self._path = folder / f"{identity}.json" if keep else None

    def read(self) -> SourcePlace:
        state = read_json(self._path) if self._path else {}
        numbers = [state.get(name) for name in ("events", "lines", "offset")]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            return SourcePlace()
        return SourcePlace(state["events"], state["lines"], state["offset"], str(state.get("last_line", "")))

    def write(self, place: SourcePlace) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(self._path, asdict(place))
