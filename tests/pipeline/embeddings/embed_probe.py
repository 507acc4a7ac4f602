"""Doing the open embedding jobs of a lake, in a process of their own that a test kills at a crash point."""

from __future__ import annotations

from frazil.embedding import ModelSettings
from frazil.lake.derived import delete_embeddings, drop_embeddings
from frazil.registry import finish_job, open_jobs
from frazil.requests import EMBED
from tests.kills import Address
from tests.pipeline.embeddings.place import Place

PIECE_ROWS = 6


def do_embed_jobs(there: Address, models: dict[str, ModelSettings]) -> None:
    lake = there.open()
    doer = Place(lake, models, PIECE_ROWS).job
    for job in open_jobs(lake.registry, [EMBED.name]):
        finish_job(lake.registry, job, {"state": "done", **doer.run(job, lambda progress: None)})


def delete_model(there: Address, table: str, model: str) -> None:
    delete_embeddings(there.open(), table, model)


def drop_beside(there: Address, table: str) -> None:
    drop_embeddings(there.open(), table)
