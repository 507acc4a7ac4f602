"""Load plan: the table of a load before it is created or extended, as the sample suggests it, and its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from frazil.errors import NotFound
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import FilePlan, discard, draft_location, holds, plan_draft_files, plan_extended_files, plan_files
from frazil.lake.catalog import Lake, LakeTable
from frazil.pipeline.sources.csv.column_mapping import (
    FileColumns,
    columns_to_add,
    decided_types,
    new_spec,
    quarantine_of,
    targets,
    to_infer,
)
from frazil.pipeline.sources.csv.task import CsvTask, CsvTaskResult, LoadStamp
from frazil.pipeline.sources.csv.text_ranges import CsvRange
from frazil.pipeline.sources.csv.type_inference import ColumnFacts
from frazil.pipeline.sources.csv.type_sample import sampled, supposed
from frazil.requests import LoadRequest

_PIECE_BYTES = 128 << 20
"""A task makes one file of so many bytes of text; fewer where there would not be work for every core."""
_PIECES_PER_CORE = 2


@dataclass(frozen=True)
class LoadPlan:
    """The tables and files that the tasks of one try write."""

    spec: TableSpec
    rows_plan: FilePlan
    bad_plan: FilePlan
    guess: Mapping[str, ColumnFacts] = field(default_factory=dict)
    """The facts that the types of some columns are guessed by."""
    known: TableSpec | None = None
    """The table as it was before."""
    location: str | None = None
    bad_location: str | None = None
    """Folders of tables that are not made yet."""

    def pieces(
        self, shapes: Sequence[FileColumns], request: LoadRequest, stamp: LoadStamp, cores: int
    ) -> list[CsvTask]:
        total = sum(csv_range.length for shape in shapes for csv_range in shape.file.ranges)
        size = min(_PIECE_BYTES, max(1, total // (cores * _PIECES_PER_CORE)))
        found = []
        for number, shape in enumerate(shapes):
            columns, extra = targets(shape, self.spec)
            for ranges in _grouped(shape.file.ranges, size):
                found.append(
                    CsvTask(
                        file=Path(shape.file.path).name,
                        number=number,
                        ranges=ranges,
                        dialect=shape.file.dialect,
                        width=shape.file.width,
                        columns=columns,
                        extra=extra,
                        null_words=request.null_words,
                        stamp=stamp,
                        rows_plan=self.rows_plan,
                        bad_plan=self.bad_plan,
                        supposed=supposed(shape, self.guess, self.spec, self.known),
                    )
                )
        return found

    def facts(self, done: Sequence[CsvTaskResult]) -> dict[str, ColumnFacts]:
        """What all the data says about the columns that were guessed."""
        facts = {name: ColumnFacts() for name in self.guess}
        for piece in done:
            for name, more in piece.facts.items():
                facts[name] += more
        return facts

    def came_true(self, table: LakeTable, quarantine: LakeTable, done: Sequence[CsvTaskResult]) -> bool:
        """Whether what the tasks wrote is of the tables as they are now."""
        if any(piece.contradicted for piece in done) or self.spec.columns != table.spec.columns:
            return False
        return holds(self.bad_plan, quarantine) and (table.spec.kind == "entity" or holds(self.rows_plan, table))

    def discard(self, done: Sequence[CsvTaskResult]) -> None:
        discard(self.rows_plan, [file for piece in done for file in piece.files])
        discard(self.bad_plan, [file for piece in done for file in piece.bad_files])


def draft_of(
    lake: Lake, request: LoadRequest, table: LakeTable | None, shapes: Sequence[FileColumns], mark: str
) -> LoadPlan:
    """The table that these files would make, or need, if all of their data were like the sample."""
    known = table.spec if table else None
    guess = sampled(shapes, to_infer(shapes, request.columns, known), request.null_words)
    if table is None:
        spec = new_spec(request.table, shapes, request.columns, decided_types(guess))
        location = draft_location(lake, spec.name, mark)
        rows_plan = plan_draft_files(lake, spec, location)
    else:
        spec, location = (
            table.spec.with_columns(columns_to_add(table.spec, request.columns, decided_types(guess))),
            None,
        )
        rows_plan = plan_files(lake, table) if spec.kind == "entity" else plan_extended_files(lake, table, spec)
    bad_plan, bad_location = _quarantine(lake, quarantine_of(spec), mark)
    return LoadPlan(spec, rows_plan, bad_plan, guess, known, location, bad_location)


def draft_as_made(lake: Lake, table: LakeTable, quarantine: LakeTable) -> LoadPlan:
    """The tables as they are."""
    return LoadPlan(table.spec, plan_files(lake, table), plan_files(lake, quarantine))


def _quarantine(lake: Lake, spec: TableSpec, mark: str) -> tuple[FilePlan, str | None]:
    try:
        table = lake.table(spec.name)
    except NotFound as error:
        if error.code != "table_not_found":
            raise
        location = draft_location(lake, spec.name, mark)
        return plan_draft_files(lake, spec, location), location
    return plan_extended_files(lake, table, table.spec.with_columns(spec.columns)), None


def _grouped(ranges: Sequence[CsvRange], size: int) -> list[tuple[CsvRange, ...]]:
    """Groups of about this size, all of about the same, so that no task ends much later than the others."""
    total = sum(csv_range.length for csv_range in ranges)
    groups: dict[int, list[CsvRange]] = {}
    before = 0
    for csv_range in ranges:
        middle = before + csv_range.length / 2
        groups.setdefault(int(middle * round(total / size or 1) / total), []).append(csv_range)
        before += csv_range.length
    return [tuple(group) for group in groups.values()]
