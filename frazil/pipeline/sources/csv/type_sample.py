"""Type sample: types guessed from some records, so that one pass over the text can judge, convert and write it.

The guess is made from the beginnings of some ranges. Every task returns the same facts of all the data it reads, and
their sum decides. If it decides otherwise, the rows are written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from frazil.events.declaration import ColumnType, TableSpec
from frazil.pipeline.sources.csv.column_mapping import FileColumns, wider
from frazil.pipeline.sources.csv.dialect import Dialect
from frazil.pipeline.sources.csv.field_text import read_text
from frazil.pipeline.sources.csv.record_boundaries import last_end
from frazil.pipeline.sources.csv.text_ranges import CsvRange
from frazil.pipeline.sources.csv.type_inference import ColumnFacts, decide, facts_of

SAMPLES = 16
SAMPLE_BYTES = 256 << 10
"""4 MB in all take 40 ms. Spread over the load they meet most of what comes late: columns that are empty at first,
larger numbers."""


@dataclass(frozen=True)
class GuessedColumn:
    """A column of a file whose type is a guess: the sample's facts, and the type that it got by them."""

    name: str
    position: int
    facts: ColumnFacts
    type: ColumnType
    widening: bool
    """The table has the column already: only a wider type would be another one."""

    def stands(self, more: ColumnFacts) -> bool:
        """Whether the type is still the right one if the data says this too."""
        found = decide(self.facts + more)
        return (wider(self.type, found) if self.widening else found) == self.type


def sampled(shapes: Sequence[FileColumns], names: Sequence[str], null_words: Sequence[str]) -> dict[str, ColumnFacts]:
    """What some of the data says about these columns."""
    facts = {name: ColumnFacts() for name in names}
    if not names:
        return facts
    ranges = [(shape, csv_range) for shape in shapes for csv_range in shape.file.ranges]
    for shape, csv_range in ranges[:: -(-len(ranges) // SAMPLES) or 1]:
        beginning = _beginning(csv_range, shape.file.dialect)
        wanted = [position for position, name in enumerate(shape.names) if name in facts]
        text = read_text(beginning, shape.file.dialect, shape.file.width, wanted, null_words)
        for position in wanted:
            facts[shape.names[position]] += facts_of(text.field(position))
    return facts


def supposed(
    shape: FileColumns, guess: Mapping[str, ColumnFacts], spec: TableSpec, known: TableSpec | None
) -> tuple[GuessedColumn, ...]:
    """The guessed columns of a file. `known` is the table as it was before."""
    return tuple(
        GuessedColumn(name, position, guess[name], spec.columns[name].type, known is not None and name in known.columns)
        for position, name in enumerate(shape.names)
        if name in guess
    )


def _beginning(csv_range: CsvRange, dialect: Dialect) -> CsvRange:
    """The first records of a range; none where the first one is longer than a sample."""
    if csv_range.length <= SAMPLE_BYTES:
        return csv_range
    data = replace(csv_range, length=SAMPLE_BYTES).read()
    return replace(csv_range, length=last_end(data.removesuffix(b"\r"), dialect), unclosed=False)
