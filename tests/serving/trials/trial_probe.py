"""Does the trials that wait, in a process that a test kills."""

from __future__ import annotations

from pathlib import Path

from frazil.registry import finish_job, open_jobs
from frazil.requests import TRIAL
from frazil.serving import SearchSettings
from frazil.serving.trials import TrialHandler
from tests.kills import Address


def do_trial_jobs(where: Address, scratch: str) -> None:
    lake = where.open()
    doer = TrialHandler(lake, {}, SearchSettings(), scratch=Path(scratch), nice=0)
    for job in open_jobs(lake.registry, [TRIAL.name]):
        finish_job(lake.registry, job, {"state": "done", **doer.run(job, lambda progress: None)})
