"""Trial jobs, from request to report. A second run finishes the first: what is journalled is not tried again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from frazil.embedding import OWN, ModelSettings, ModelSpec, find_model_spec
from frazil.errors import FrazilError, InvalidInput, Unavailable
from frazil.lake.catalog import Lake, LakeTable
from frazil.lake.derived import journal_trials, read_trials
from frazil.registry import Job, ProgressCallback
from frazil.requests import TrialRequest
from frazil.serving.artifacts.shelf import Shelf, open_shelf
from frazil.serving.artifacts.write import workplace
from frazil.serving.child_tasks import NICE, ChildCancelled, ChildCodes, ChildTasks
from frazil.serving.profiles import Profiles
from frazil.serving.settings import SearchSettings
from frazil.serving.trials.compare import Compare
from frazil.serving.trials.dataset import Dataset, model_of, sample, stored_rows, take
from frazil.serving.trials.eval_set import EvalSet, Prepare, made_from
from frazil.serving.trials.host import engines, machine
from frazil.serving.trials.rule import Rule, leading
from frazil.serving.trials.run import Run
from frazil.serving.trials.trial_request import parse_trial
from frazil.serving.trials.trial_rows import trial_json

_CODES = ChildCodes("trial_failed", "trial_failed", "trial_failed")


class TrialHandler:
    """Runs the jobs of kind `trial`."""

    def __init__(
        self,
        lake: Lake,
        models: Mapping[str, ModelSettings],
        settings: SearchSettings,
        *,
        scratch: Path,
        nice: int = NICE,
    ) -> None:
        self._lake = lake
        self._models = models
        self._settings = settings
        self._scratch = scratch
        self.tasks = ChildTasks(_CODES, nice=nice)

    def cancel(self) -> None:
        self.tasks.cancel()

    def run(self, job: Job, report_progress: ProgressCallback) -> dict[str, Any]:
        request = parse_trial(job.params)
        table = self._lake.table(request.table)
        try:
            with self.tasks.job(), workplace(self._scratch) as folder:
                if request.models:
                    return self._compared(job, request, table, folder, report_progress)
                return self._tried(job, request, table, folder, report_progress)
        except ChildCancelled:
            raise Unavailable("the trial was cancelled", code="trial_given_up", hint="it is done again") from None

    def _tried(
        self, job: Job, request: TrialRequest, table: LakeTable, folder: Path, report_progress: ProgressCallback
    ) -> dict[str, Any]:
        began = time.monotonic()
        deadline = began + request.limit_seconds
        shelf, model = shelf_and_model(self._lake, table, request.profile, request.model, self._settings)
        dataset = take(self._lake, table, shelf, model, folder, max_vectors=request.max_vectors, seed=request.seed)
        spec = self._spec(model)
        eval_set = _eval_set(request, dataset, spec)
        made = not request.eval_set
        task = Prepare(folder, eval_set.questions, spec, dataset.version, request.k, is_made=made)
        prepared = self.tasks.run(task, timeout_seconds=request.limit_seconds)
        known = read_trials(self._lake, table.name, run=job.id)

        def journal(rows: list[dict[str, Any]]) -> None:
            journal_trials(self._lake, table.spec, job.id, rows)

        run = Run(job.id, request, dataset, eval_set, prepared, self.tasks, journal, known, deadline)
        run.all(report_progress)
        rule = Rule.parse(request.rule)
        won = leading([row for row in run.rows if row["state"] == "ok"], rule)
        return {
            "table": table.spec.short_name,
            "run": job.id,
            **dataset.body(),
            "k": request.k,
            "queries": len(prepared.kept),
            "asked": eval_set.asked,
            "left_out": prepared.left_out,
            "trials": [trial_json(row) for row in run.rows],
            "left": run.left,
            "rule": str(rule),
            "best": None if won is None else won["trial"],
            "seconds": round(time.monotonic() - began, 1),
        }

    def _compared(
        self, job: Job, request: TrialRequest, table: LakeTable, folder: Path, report_progress: ProgressCallback
    ) -> dict[str, Any]:
        """Each model over the vectors of the same documents, with the same questions."""
        began = time.monotonic()
        model_of(table.spec)
        datasets = self._same_documents(request, table, folder)
        first = datasets[0]
        eval_set = _eval_set(request, first, self._spec(first.model))
        if not any(question.expected for question in eval_set.questions):
            raise InvalidInput(
                "models are compared by documents that should be found, and no query names one",
                code="nothing_expected",
                hint='{"text": "how to skate", "expected": ["n1"]}',
            )
        known = {row["model"]: row for row in read_trials(self._lake, table.name, run=job.id)}
        rows = []
        for number, dataset in enumerate(datasets):
            report_progress({"compared": number, "of": len(datasets)})
            rows.append(known.get(dataset.model) or self._compare_model(job, request, dataset, eval_set))
        journal_trials(self._lake, table.spec, job.id, [row for row in rows if row["model"] not in known])
        return {
            "table": table.spec.short_name,
            "run": job.id,
            "k": request.k,
            "queries": len(eval_set.questions),
            "documents": len(set(first.documents)),
            "asked": eval_set.asked,
            "models": [trial_json(row) for row in rows],
            "seconds": round(time.monotonic() - began, 1),
        }

    def _same_documents(self, request: TrialRequest, table: LakeTable, folder: Path) -> list[Dataset]:
        stored = {model: stored_rows(self._lake, table, model) for model in request.models}
        documents = {model: rows.documents() for model, rows in stored.items()}
        common = sorted(set.intersection(*(set(names) for names in documents.values())))
        if not common:
            raise InvalidInput("these models have no document in common", code="nothing_in_common", hint="frazil embed")
        most = max(len(names) for names in documents.values())
        kept_share = min(1.0, request.max_vectors / most)
        chosen = {common[at] for at in sample(len(common), max(1, int(len(common) * kept_share)), request.seed)}
        found = []
        for model, rows in stored.items():
            is_in = np.array([name in chosen for name in documents[model]])
            found.append(rows.dataset(table.name, rows.newest[is_in], folder / model))
        return found

    def _compare_model(self, job: Job, request: TrialRequest, dataset: Dataset, eval_set: EvalSet) -> dict[str, Any]:
        row: dict[str, Any] = {
            **dataset.body(),
            "run": job.id,
            "trial": dataset.model,
            "tried_at": datetime.now(UTC),
            "purpose": "model",
            "state": "ok",
            "kind": "flat",
            "config": '{"kind": "flat"}',
            "queries": len(eval_set.questions),
            "asked": eval_set.asked,
            "eval_set": eval_set.id,
            "k": request.k,
            "machine": machine(),
            "engines": engines(),
        }
        try:
            spec = self._spec(dataset.model)
            documents = tuple(dataset.documents)
            task = Compare(dataset.folder, documents, eval_set.questions, spec, dataset.version, request.k)
            found = self.tasks.run(task, timeout_seconds=request.trial_seconds)
        except FrazilError as error:
            return {**row, "state": "failed", "reason": f"{error.code}: {error.message}"[:500]}
        reasons = ", ".join(f"{why} ({number})" for why, number in found.left_out.items())
        reason = f"queries without a vector: {reasons}" if reasons else None
        return {**row, "hit_rate": found.hit_rate, "mrr": found.mrr, "p50_ms": found.p50_ms, "reason": reason}

    def _spec(self, model: str) -> ModelSpec | None:
        return None if model == OWN else find_model_spec(model, self._models)


def shelf_and_model(
    lake: Lake, table: LakeTable, profile: str | None, model: str | None, settings: SearchSettings
) -> tuple[Shelf, str]:
    """Whose index is meant: the table's, or that of a profile; and of which model."""
    of_table = model_of(table.spec)
    name = table.name
    if profile is not None:
        found = Profiles(lake.registry).get(profile)
        if found.table != table.name:
            raise InvalidInput(f"the profile {profile!r} is of another table", code="bad_trial", hint=found.table)
        name, of_table = found.shelf, found.model or of_table
    return open_shelf(lake.registry, lake.warehouse, name, settings), model or of_table


def _eval_set(request: TrialRequest, dataset: Dataset, spec: ModelSpec | None) -> EvalSet:
    if request.eval_set:
        return EvalSet(request.eval_set, "given")
    return made_from(dataset, request.queries, request.seed, has_model=spec is not None)
