"""A build where tables and artifacts are on S3, in a process of its own that must be given the keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.lake.catalog import open_lake
from tests.contract.seaweed import SeaweedServer
from tests.lake.staging import append
from tests.serving.builds.yard import Yard


@pytest.mark.slow
@pytest.mark.s3
def test_an_artifact_on_s3(seaweed: SeaweedServer, tmp_path: Path) -> None:
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", seaweed.warehouse("build ü"))
    yard = Yard(lake, tmp_path, own_process=True)
    yard.place.declare()
    append(lake, "main.notes", [{"_id": f"n{n}", "body": f"Text {n}."} for n in range(5)])
    first = yard.build()
    append(lake, "main.notes", [{"_id": "m", "body": "More."}])
    told = yard.build()
    assert (first["vectors_read"], told["vectors_kept"], told["vectors_read"]) == (5, 5, 1)
    held = yard.fetched()
    assert {row["_id"] for row in held.rows} == {"m", *(f"n{n}" for n in range(5))} and len(held.vectors) == 6
    shelf = yard.shelf()
    tags = shelf.objects.tags(shelf.key(told["generation"], "manifest.json"))
    assert tags is not None and tags["frazil-state"] == "current"
    lake.close()
