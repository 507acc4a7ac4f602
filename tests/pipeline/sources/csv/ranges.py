"""Ranges of CSV text, parsed in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frazil.pipeline.sources.csv.dialect import Dialect
from frazil.pipeline.sources.csv.parse import CellRefusal, Parsed, TargetColumn, parse_text, read_fields
from frazil.pipeline.sources.csv.text_ranges import CsvRange


def parse_range(
    csv_range: CsvRange,
    dialect: Dialect,
    width: int,
    columns: Sequence[TargetColumn],
    *,
    null_words: Sequence[str] = (),
    refused: Mapping[int, CellRefusal] | None = None,
) -> Parsed:
    return parse_text(read_fields(csv_range, dialect, width, columns, null_words), columns, refused=refused)
