"""Processes of tests that are forked from one which has no threads and has imported everything.

What another thread holds in the moment of a fork is held for ever in the child: tests never fork themselves. There is
one such server in each process of tests, and what it imports is said once, here.
"""

from __future__ import annotations

import multiprocessing

# Modules that load what they need at once; `frazil.lake` itself waits until it is asked for a name.
PRELOADED = [
    "pytest",
    "duckdb",
    "pyspark.cloudpickle",
    "pyspark.sql",
    "frazil.lake.recovery.catalog_rebuild",
    "frazil.lake.maintenance.row_removal",
    "frazil.lake.catalog.entity",
    "frazil.bus.nats",
    "frazil.gateway.purge",
    "frazil.gateway.search.shelf_reader",
    "frazil.tables.create",
    "frazil.pipeline.sources.csv.handler",
    "frazil.pipeline.embeddings.handler",
    "frazil.pipeline.sources.postgres.handler",
    "frazil.serving.artifacts.parts.duckdb_part",
    "frazil.serving.artifacts.shelf",
    "frazil.serving.builds.handler",
    "frazil.serving.sql.worker.sandbox",
]
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(PRELOADED)
