"""Embedding where tables are on S3: files are written, known, reused and missed there as on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.lake.catalog import open_lake
from frazil.lake.derived import delete_embeddings
from tests.contract.seaweed import SeaweedServer
from tests.pipeline.embeddings.place import Place, chunk_names

pytestmark = [pytest.mark.slow, pytest.mark.s3]


def test_vectors_on_s3(seaweed: SeaweedServer, tmp_path: Path) -> None:
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", seaweed.warehouse("embed ü"))
    place = Place(lake, piece_rows=4)
    place.declare()
    place.add([{"_id": f"n{n}", "body": f"Text {n % 8}."} for n in range(10)])
    told = place.embed()
    assert told["embedded"] + told["reused"] == 10 and told["published"] == 2
    place.add([{"_id": "m1", "body": "Text 7."}, {"_id": "m2", "body": "New."}])
    told = place.embed()
    assert (told["rows"], told["embedded"], told["reused"]) == (2, 1, 1)
    names = chunk_names(place.vectors())
    assert len(names) == len(set(names)) == 12
    assert place.embed(sweep=True)["swept"] == 0 and chunk_names(place.vectors()) == names
    assert delete_embeddings(lake, "main.notes", "wordllama") == 12 and place.vectors() == []
    lake.close()
