"""In which order files are run: those that take minutes first, so that no worker is left alone with one at the end."""

from __future__ import annotations

import pytest

# The longest of all first. A file that is missing here is only run later than it might be.
LONG = (
    "tests/flow/test_faults.py",
    "tests/flow/test_availability.py",
    "tests/flow/test_crash_points.py",
    "tests/flow/test_kills.py",
    "tests/benchmarks/test_bulk.py",
    "tests/flow/test_sources.py",
    "tests/flow/test_docs.py",
    "tests/flow/test_pipeline_faults.py",
    "tests/pipeline/test_partitions_on_spark.py",
    "tests/benchmarks/test_bench.py",
    "tests/pipeline/test_fold_on_spark.py",
    "tests/pipeline/test_commit_on_s3.py",
    "tests/flow/test_other_stores.py",
    "tests/flow/test_live_reads.py",
    "tests/flow/test_maintenance.py",
    "tests/flow/test_entities.py",
    "tests/flow/test_disk_full.py",
    "tests/flow/test_repairs.py",
    "tests/flow/test_lost_catalog.py",
    "tests/flow/test_vault.py",
    "tests/flow/test_round_trip.py",
    "tests/benchmarks/test_query.py",
    "tests/serving/trials/test_run.py",
    "tests/gateway/query/test_attacks.py",
    "tests/serving/search/test_freshness.py",
    "tests/pipeline/test_maintenance_on_spark.py",
    "tests/pipeline/sources/postgres/test_refresh.py",
    "tests/pipeline/sources/postgres/test_refresh_kills.py",
    "tests/lake/test_beyond.py",
    "tests/contract/test_objects.py",
    "tests/contract/test_bus.py",
    "tests/gateway/query/test_entity_model.py",
    "tests/serving/builds/test_kills.py",
    "tests/serving/trials/test_data.py",
    "tests/serving/builds/test_model.py",
    "tests/lake/test_tables.py",
    "tests/gateway/search/test_kills.py",
    "tests/lake/test_recover.py",
    "tests/lake/test_states.py",
    "tests/gateway/search/answers/test_model.py",
    "tests/gateway/search/answers/test_swaps.py",
)


def longest_first(items: list[pytest.Item]) -> None:
    """Keeps the order within a file."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))
