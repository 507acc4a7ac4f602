"""Where artifacts lie in tests: a folder, and a bucket of a real S3 server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from frazil.storage import Warehouse
from tests.contract.seaweed import SeaweedServer
from tests.serving.artifacts.killing import Place
from tests.serving.artifacts.samples import Bakery


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Place(tmp_path / "catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    seaweed: SeaweedServer = request.getfixturevalue("seaweed")
    return Place(tmp_path / "catalog.db", seaweed.warehouse(uuid.uuid4().hex))


@pytest.fixture
def bakery(tmp_path: Path) -> Bakery:
    return Bakery(tmp_path)
