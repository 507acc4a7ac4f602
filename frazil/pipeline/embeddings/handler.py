"""Handler of embedding jobs: find new rows, embed and publish them, piece by piece. Doing a job again finishes it.

What is published is not embedded again: the next try finds the chunks that have a vector. Only when all rows of a
snapshot were looked at does the table of vectors remember so, in the commit of the last of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from msgspec import structs

from frazil.crash import crash_point
from frazil.embedding import OWN, OWN_VERSION, ModelSettings, ModelSpec, find_model_spec, open_model
from frazil.errors import Unavailable
from frazil.events.declaration import TableSpec
from frazil.lake.bulk import FileGone, FileRange, Load, Replaces, publish_load, rows_by
from frazil.lake.catalog import Lake, LakeTable, alter_entity
from frazil.lake.derived import (
    EmbeddingProgress,
    embedded_up_to,
    embeddings_spec,
    forget_refusals,
    refused_embeddings_spec,
)
from frazil.pipeline.embeddings.model_choice import check_model
from frazil.pipeline.embeddings.plan import QUICK_ROWS, SLOW_ROWS, EmbedPlan, pieces_of, plan_rows
from frazil.pipeline.embeddings.recipe import Recipe
from frazil.pipeline.embeddings.tally import Tally
from frazil.pipeline.embeddings.task import EmbedDone, embed_piece, own_dims
from frazil.pipeline.jobs.spark_tasks import Tasks
from frazil.registry import Job, ProgressCallback, open_jobs, submit_job
from frazil.requests import EMBED, EmbedRequest

_TURN_SECONDS = 60.0
"""After so long a job lets others go first, if any wait."""


class EmbeddingJobs:
    def __init__(
        self, lake: Lake, tasks: Tasks, models: Mapping[str, ModelSettings], *, piece_rows: int | None = None
    ) -> None:
        self.lake = lake
        self.tasks = tasks
        self.models = models
        self.piece_rows = piece_rows

    def cancel(self) -> None:
        self.tasks.cancel()

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        return _Run(self, job, EmbedRequest.parse(job.params)).run(report_progress)


class _Run:
    """One try of one job."""

    def __init__(self, jobs: EmbeddingJobs, job: Job, request: EmbedRequest) -> None:
        self._lake = jobs.lake
        self._tasks = jobs.tasks
        self._models = jobs.models
        self._piece_rows = jobs.piece_rows
        self._job = job
        self._request = request
        self._began = time.monotonic()
        self._tally = Tally()

    def run(self, report_progress: ProgressCallback) -> dict[str, Any]:
        table = self._lake.table(self._request.table)
        name = check_model(table.spec, self._request)
        spec = None if name == OWN else self._spec(name)
        self._embeddings = self._lake.create_bulk(embeddings_spec(table.spec))
        self._refused = self._lake.create_bulk(refused_embeddings_spec(table.spec))
        crash_point("after_embed_declare")
        if self._request.retry:
            self._embeddings, self._refused = forget_refusals(self._lake, table.name, name, self._job.id)
        while True:
            table = self._lake.table(self._request.table)
            recipe = self._recipe(table, name, spec)
            plan = plan_rows(table, self._embeddings, recipe, piece_rows=self._rows_of_piece(recipe))
            published = self._tally.published
            try:
                finished = self._embedded(table, recipe, plan, report_progress)
                break
            except Unavailable as error:
                # Compacted while we were at it, for longer than old files are kept. What is published is known now.
                if error.code != FileGone.code or self._tally.published == published:
                    raise
        report = self._tally.body(recipe, plan, time.monotonic() - self._began)
        if not finished:
            rest = submit_job(
                self._lake.registry,
                EMBED.name,
                self._job.subject,
                self._remaining_request(),
                asked_by=self._job.asked_by,
            )
            return {**report, "complete": False, "continued_by": rest.id}
        if self._request.sweep:
            report["swept"] = self._swept(table, recipe)
        return {**report, "complete": True, "is_of_table": self._cut_over(table, name)}

    def _spec(self, name: str) -> ModelSpec:
        spec = find_model_spec(name, self._models)
        rate = spec.settings.max_requests_per_second
        if rate is None:
            return spec
        # The limit is one of processes, and this job has one for each core.
        settings = spec.settings.model_copy(update={"max_requests_per_second": rate / self._tasks.cores})
        return replace(spec, settings=settings)

    def _rows_of_piece(self, recipe: Recipe) -> int:
        is_quick = recipe.model is None or recipe.model.settings.provider == "wordllama"
        return self._piece_rows or (QUICK_ROWS if is_quick else SLOW_ROWS)

    def _recipe(self, table: LakeTable, name: str, spec: ModelSpec | None) -> Recipe:
        if spec is not None:
            ((version, dims),) = self._tasks.run([spec], _described, doing=f"open the model {name}")
            return Recipe(table.spec, name, version, dims, self._job.asked_at, spec)
        last = embedded_up_to(self._embeddings, name)
        own = Recipe(table.spec, name, OWN_VERSION, last.dims if last else 0, self._job.asked_at)
        return own if own.dims else replace(own, dims=self._own_dims(table, own))

    def _own_dims(self, table: LakeTable, own: Recipe) -> int:
        """As many numbers as the first vector has; those that differ go into quarantine."""
        plan = plan_rows(table, self._embeddings, own, piece_rows=QUICK_ROWS)
        for piece in pieces_of(self._lake, table, own, plan.pieces, self._embeddings, self._refused):
            (found,) = self._tasks.run([piece], own_dims, doing=f"look at the vectors of {table.name}")
            if found is not None:
                return int(found)
        return 1  # no row has a vector: all of them are refused

    def _embedded(self, table: LakeTable, recipe: Recipe, plan: EmbedPlan, report_progress: ProgressCallback) -> bool:
        """Embed and publish, some pieces at a time; False if others should have their turn before the rest."""
        looked = 0
        waves = [plan.pieces[at : at + self._tasks.cores] for at in range(0, len(plan.pieces), self._tasks.cores)]
        for number, wave in enumerate(waves):
            report_progress({"looked_at": looked, "of": plan.rows})
            self._wave(table, recipe, wave, plan.up_to if number == len(waves) - 1 else None)
            looked += sum(part.rows for piece in wave for part in piece)
            if number < len(waves) - 1 and self._should_give_way():
                return False
        if plan.has_progress and embedded_up_to(self._embeddings, recipe.name) != plan.up_to:
            self._embeddings = self._lake.set_properties(self._embeddings.name, _as_properties(plan.up_to))
        crash_point("after_embed_state")
        return True

    def _wave(
        self, table: LakeTable, recipe: Recipe, wave: Sequence[tuple[FileRange, ...]], up_to: EmbeddingProgress | None
    ) -> None:
        pieces = pieces_of(self._lake, table, recipe, wave, self._embeddings, self._refused)
        done = self._tasks.run(pieces, embed_piece, doing=f"embed {table.name}")
        crash_point("after_embed_tasks")
        self._tally.add(done)
        stopped = next((piece.stopped for piece in done if piece.stopped is not None), None)
        self._publish(recipe, done, up_to if stopped is None else None)
        if stopped is not None:
            raise stopped.error()

    def _publish(self, recipe: Recipe, done: Sequence[EmbedDone], up_to: EmbeddingProgress | None) -> None:
        refused, vectors = sum(piece.refused for piece in done), sum(piece.reused + piece.embedded for piece in done)
        # First what has no vector: seen without it, the others would look like all there is.
        if refused:
            load = Load(self._load_id(recipe, [piece.refused_content for piece in done]), refused)
            files = [file for piece in done for file in piece.refused_files]
            check = _only_compacted_since(self._refused)
            self._refused = publish_load(self._lake, self._refused.name, load, files, check=check).table
        crash_point("after_embed_quarantine_publish")
        if vectors:
            load = Load(
                self._load_id(recipe, [piece.content for piece in done]),
                vectors,
                summary={"frazil.source": f"embed:{recipe.name}@{recipe.version}"[:500]},
                properties=up_to.property() if up_to is not None else None,
            )
            files = [file for piece in done for file in piece.files]
            check = _only_compacted_since(self._embeddings)
            self._embeddings = publish_load(self._lake, self._embeddings.name, load, files, check=check).table
            self._tally.published += 1
        crash_point("after_embed_publish")

    def _swept(self, table: LakeTable, recipe: Recipe) -> int:
        """Write the vectors of today's chunks again, in the place of all that the model had; how many rows went.

        It is one commit for each of the two tables, so that nobody sees less than all; the refused come first, which
        are tried once more.
        """
        before = rows_by(self._embeddings, "model").get(recipe.name, 0)
        plan = plan_rows(table, self._embeddings, recipe, piece_rows=self._rows_of_piece(recipe), whole=True)
        pieces = pieces_of(self._lake, table, recipe, plan.pieces, self._embeddings, self._refused, is_rewrite=True)
        done = self._tasks.run(pieces, embed_piece, doing=f"sweep the vectors of {table.name}")
        for stopped in (piece.stopped for piece in done if piece.stopped is not None):
            raise stopped.error()
        crash_point("before_embed_sweep")
        replaced: dict[str, Any] = {"replaces": Replaces.PARTITION, "partition": {"model": recipe.name}}
        refused = Load(f"sweep-{self._job.id}", sum(piece.refused for piece in done), **replaced)
        files = [file for piece in done for file in piece.refused_files]
        check = _only_compacted_since(self._refused)
        if files or rows_by(self._refused, "model").get(recipe.name):
            self._refused = publish_load(self._lake, self._refused.name, refused, files, check=check).table
        crash_point("amid_embed_sweep")
        rows = sum(piece.reused + piece.embedded for piece in done)
        load = Load(f"sweep-{self._job.id}", rows, properties=plan.up_to.property(), **replaced)
        files = [file for piece in done for file in piece.files]
        check = _only_compacted_since(self._embeddings)
        if files or before:
            self._embeddings = publish_load(self._lake, self._embeddings.name, load, files, check=check).table
        return before - rows

    def _load_id(self, recipe: Recipe, contents: Sequence[str]) -> str:
        """Of the request and of the very chunks: other rows are never taken for these."""
        content = " ".join((recipe.name, recipe.version, *contents))
        return f"{self._job.id.partition('-')[2]}{blake2b(content.encode(), digest_size=8).hexdigest()}"

    def _should_give_way(self) -> bool:
        if time.monotonic() - self._began < _TURN_SECONDS:
            return False
        return any(job.subject != self._job.subject for job in open_jobs(self._lake.registry, [EMBED.name]))

    def _remaining_request(self) -> dict[str, Any]:
        """The request for the rest. Refusals are forgotten once only."""
        return structs.replace(self._request, retry=False).params()

    def _cut_over(self, table: LakeTable, name: str) -> bool:
        """Make the model the table's, if that was requested; whether it is."""
        if self._request.shadow or name == OWN:
            return name == OWN
        assert table.spec.searched is not None
        if table.spec.searched.model == name:
            return True
        crash_point("before_embed_cut_over")

        def with_model(spec: TableSpec) -> TableSpec:
            assert spec.searched is not None
            return replace(spec, search=replace(spec.searched, model=name))

        if table.spec.kind == "entity":
            alter_entity(self._lake, table.name, with_model)
        else:
            self._lake.alter(table.name, with_model)
        return True


def _described(spec: ModelSpec) -> tuple[str, int]:
    model = open_model(spec)
    return model.version, model.dims


def _as_properties(up_to: EmbeddingProgress) -> dict[str, str]:
    return {name: value for name, value in up_to.property().items() if value is not None}


def _only_compacted_since(planned: LakeTable) -> Callable[[LakeTable], None]:
    """A check that nobody added vectors to the table since this run looked for them."""
    expected = _newest_change(planned)

    def check(current: LakeTable) -> None:
        if _newest_change(current) != expected:
            raise Unavailable(
                f"{current.spec.short_name!r} was changed by another process while its vectors were made",
                code="embeddings_moved",
                hint="it is tried again; what was published stays",
            )

    return check


def _newest_change(table: LakeTable) -> int | None:
    """The newest snapshot that is no compaction."""
    return next((found.snapshot_id for found in table.snapshots() if found.operation != "replace"), None)
