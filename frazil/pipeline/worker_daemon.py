"""Worker daemon of Spark: forks Python workers that have imported what tasks of bulk jobs need.

Spark forks a worker from its daemon for each core, and again after idle minutes. Imported once here instead of once in
each of them, Arrow and PyIceberg cost seconds less for a small load, and their memory is shared.
"""

from __future__ import annotations

import gc
import os

import pyspark.daemon

import frazil.lake.bulk.data_files
import frazil.pipeline.embeddings.task
import frazil.pipeline.sources.csv.task
import frazil.pipeline.sources.postgres.archive_task  # noqa: F401

if __name__ == "__main__":
    # A load takes what is left: receipts and commits do not wait for it.
    os.nice(5)
    # Workers collect garbage after each task. Looking through all that was imported here takes 0.1 s a time.
    gc.freeze()
    pyspark.daemon.manager()  # type: ignore[no-untyped-call]
