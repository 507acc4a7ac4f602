"""Metadata candidates: the metadata files of a folder that may be the table, when no catalog names one.

Commits number their files, each one more than the file it was made from, and a file names its predecessors in its log.
A commit that lost its race, or died before the swap, leaves a file that never was current. It is recognized
by this: a commit builds only on a state that is current. So a file that another one names was current once, and is
over; and where a chain has gone on past a number, any other file of that number was never current.

What is left is the end of the chain, and sometimes a rival of the same number. Either is whole in itself: rows and
watermark are written together. The one with the higher watermark is taken, because the bus may have forgotten what
lies below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1

from frazil.lake.catalog.iceberg_files import DAMAGED
from frazil.lake.catalog.table import WATERMARK

_NUMBERED = re.compile(r"(?P<number>\d+)-[0-9a-f-]+(\.gz)?\.metadata\.json(\.gz)?")
_COPY = re.compile(r"v\d+(\.gz)?\.metadata\.json")
MAX_READ = 200
"""So many files of a folder are read, the highest numbers first; a log names 20."""


def number_of(name: str) -> int:
    """The number of a commit's metadata file; -1 for any other file."""
    match = _NUMBERED.fullmatch(name)
    return int(match["number"]) if match else -1


def is_metadata_file(name: str) -> bool:
    return number_of(name) >= 0 or _COPY.fullmatch(name) is not None


@dataclass(frozen=True)
class MetadataCandidate:
    """A table as one metadata file has it."""

    location: str
    metadata: TableMetadata

    @property
    def file(self) -> str:
        return _base(self.location)

    @property
    def number(self) -> int:
        return number_of(self.file)

    @property
    def is_copy(self) -> bool:
        """Whether it is an exported copy: of a state that was current, and that may be long over."""
        return self.number < 0

    @property
    def log(self) -> list[str]:
        return [_base(entry.metadata_file) for entry in self.metadata.metadata_log]

    @property
    def watermark(self) -> int:
        stated = self.metadata.properties.get(WATERMARK, "")
        return int(stated) if stated.lstrip("-").isdecimal() else 0

    @property
    def progress(self) -> tuple[int, int, int]:
        return self.watermark, self.sequence, self.metadata.last_updated_ms

    @property
    def sequence(self) -> int:
        """The number of the last snapshot that was made, current or not; the tables of frazil are of format 2."""
        return 0 if isinstance(self.metadata, TableMetadataV1) else self.metadata.last_sequence_number

    def descends_from(self, other: MetadataCandidate) -> bool:
        """Whether it was made from `other`, directly or not; a log that does not reach back so far is taken for yes."""
        return other.file in self.log or (bool(self.log) and number_of(self.log[0]) > other.number)


def read_states(io: FileIO, locations: Iterable[str]) -> tuple[list[MetadataCandidate], list[str]]:
    """The states in these files, and the files that cannot be read. One that is deleted meanwhile is neither."""
    states: list[MetadataCandidate] = []
    torn: list[str] = []
    for location in sorted(locations, key=lambda location: (number_of(_base(location)), location), reverse=True):
        if len(states) + len(torn) >= MAX_READ and number_of(_base(location)) >= 0:
            continue
        try:
            states.append(MetadataCandidate(location, FromInputFile.table_metadata(io.new_input(location))))
        except FileNotFoundError:
            continue
        except DAMAGED:
            torn.append(location)
    return states, torn


def newest_candidates(states: Sequence[MetadataCandidate]) -> list[MetadataCandidate]:
    """The states that can have been current last, the one to take first; the others are its rivals."""
    numbered = [state for state in states if not state.is_copy]
    over = {file for state in numbered for file in state.log}
    ends = [state for state in numbered if state.file not in over]
    ends = [state for state in ends if not any(_supersedes(other, state) for other in ends)]
    # A copy that is ahead of every commit's file is of a state whose own file is gone.
    furthest = max((state.progress for state in numbered), default=(-1, -1, -1))
    ends += [state for state in states if state.is_copy and state.progress > furthest]
    return sorted(ends, key=lambda state: (state.progress, state.number, state.file), reverse=True)


def _supersedes(other: MetadataCandidate, lost: MetadataCandidate) -> bool:
    """Whether the chain that led to `other` has another file than `lost` at its number."""
    if lost.log and lost.log[-1] in other.log[:-1]:
        return True
    oldest = number_of(other.log[0]) if other.log else -1
    return lost.number < oldest and lost.progress <= other.progress


def _base(location: str) -> str:
    return location.rpartition("/")[2]
