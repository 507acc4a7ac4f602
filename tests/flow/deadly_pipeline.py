"""The pipeline's process, whose JVM is killed whenever a stage holds the event `deadly`; run with `python -m`."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pyarrow as pa
from pyspark import SparkContext

from frazil.pipeline.commit import target
from frazil.runtime import run_pipeline
from frazil.runtime.logs import set_up
from frazil.settings import load

DEADLY = "deadly"
_stage = target.stage


def stage(session: Any, table: str, rows: pa.Table, **words: Any) -> None:
    if "_id" in rows.column_names and DEADLY in rows["_id"].to_pylist():
        gateway = SparkContext._gateway
        assert gateway is not None
        os.kill(gateway.proc.pid, signal.SIGKILL)
    _stage(session, table, rows, **words)


if __name__ == "__main__":
    set_up("pipeline")
    target.stage = stage
    asyncio.run(run_pipeline(load()))
