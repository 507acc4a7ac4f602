"""A searched table whose rows are sentences of real documentation, embedded for real, and the job that tries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.embedding import ModelSettings
from frazil.lake.catalog import Lake
from frazil.lake.derived import read_trials
from frazil.registry import Job, submit_job
from frazil.requests import TRIAL
from frazil.serving import SearchSettings
from frazil.serving.trials import TrialHandler, parse_trial
from tests.pipeline.embeddings.place import Place
from tests.serving.sentences import sentences

PER_DOCUMENT = 3


@dataclass
class TrialPlace:
    lake: Lake
    scratch: Path

    def fill(self, documents: int) -> None:
        """So many documents of three sentences each; about two chunks of each."""
        place = Place(self.lake)
        place.declare()
        place.add(
            [
                {
                    "_id": f"d{number:05}",
                    "body": " ".join(sentences()[number * PER_DOCUMENT : (number + 1) * PER_DOCUMENT]),
                }
                for number in range(documents)
            ]
        )
        place.embed()

    def ask(self, **wanted: Any) -> Job:
        asked = parse_trial({"table": "notes", **wanted})
        return submit_job(self.lake.registry, TRIAL.name, asked.table, asked.params(), asked_by="someone")

    def doer(self, models: Mapping[str, ModelSettings] | None = None) -> TrialHandler:
        return TrialHandler(self.lake, models or {}, SearchSettings(), scratch=self.scratch, nice=0)

    def do(self, job: Job) -> dict[str, Any]:
        return self.doer().run(job, lambda progress: None)

    def tried(self, **wanted: Any) -> dict[str, Any]:
        return self.do(self.ask(**wanted))

    def journal(self) -> list[dict[str, Any]]:
        return read_trials(self.lake, "main.notes")
