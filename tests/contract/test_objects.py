"""One suite over both stores: objects are whole or absent, the first of many wins, what a kill leaves is swept."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from frazil.errors import InvalidInput, Misconfigured, NotFound, Unavailable
from frazil.storage import Objects, Warehouse, open_objects
from frazil.storage.s3_objects import PART_BYTES
from tests.contract.fault_proxy import Fault, FaultProxy, Kind
from tests.contract.seaweed import SeaweedServer

T = TypeVar("T")

# The last one is sent in parts, and the last part is short.
SIZES = [0, 1, 70_000, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 12_345]


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    if request.param == "folder":
        return Warehouse(f"file://{tmp_path}/a folder")
    seaweed: SeaweedServer = request.getfixturevalue("seaweed")
    # A prefix that has to be escaped in addresses, and again in nothing else.
    return seaweed.warehouse(f"objects {uuid.uuid4().hex}/ü+&")


@pytest.fixture
def objects(warehouse: Warehouse) -> Objects:
    return open_objects(warehouse, "_artifacts")


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / uuid.uuid4().hex
    path.write_bytes(content)
    return path


def content_of(size: int) -> bytes:
    return (random.randbytes(4096) * (size // 4096 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_a_file_comes_back_as_it_was(objects: Objects, tmp_path: Path, size: int) -> None:
    content = content_of(size)
    objects.put_file("t/g/vectors.f32", file_of(tmp_path, content))
    objects.get_file("t/g/vectors.f32", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    assert objects.get("t/g/vectors.f32") == content
    (found,) = objects.list("t/")
    assert (found.key, found.size) == ("t/g/vectors.f32", size)


def test_the_later_file_is_there(objects: Objects, tmp_path: Path) -> None:
    for content in (b"one", b"two, longer", b""):
        objects.put_file("a", file_of(tmp_path, content))
        assert objects.get("a") == content


def test_what_is_absent_is_told(objects: Objects, tmp_path: Path) -> None:
    for ask in (objects.get, objects.tags, lambda key: objects.get_file(key, tmp_path / "x")):
        with pytest.raises(NotFound) as told:
            ask("nothing/here")
        assert told.value.code == "object_missing"
    with pytest.raises(NotFound):
        objects.tag("nothing/here", {"state": "current"})
    assert list(objects.list()) == []
    objects.delete(["nothing/here"])


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\\b", "a b", "a?b", "ä", ".~put-1"])
def test_keys_that_lead_elsewhere_are_refused(objects: Objects, key: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        objects.put_file(key, file_of(tmp_path, b""))
    with pytest.raises(InvalidInput):
        objects.get(key)
    with pytest.raises(InvalidInput):
        objects.delete([key])


def test_names_of_many_kinds(objects: Objects, tmp_path: Path) -> None:
    keys = {"main.t/g-1/.managed.json", "main.t/g-1/a=b+c@d_e.f32", "main.t2/g", "main.t/g-10/x"}
    for key in keys:
        objects.put_file(key, file_of(tmp_path, key.encode()))
    assert {found.key for found in objects.list()} == keys
    assert {found.key for found in objects.list("main.t/")} == {key for key in keys if key.startswith("main.t/")}
    assert {found.key for found in objects.list("main.t/g-1/")} == {key for key in keys if "/g-1/" in key}
    assert all(objects.get(key) == key.encode() for key in keys)
    objects.delete(sorted(keys))
    assert list(objects.list()) == []


def test_many_objects_are_all_listed(objects: Objects, tmp_path: Path) -> None:
    """More than one page of an S3 listing."""
    one = file_of(tmp_path, b"x")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: objects.put_file(f"many/{number:04d}", one), range(1_050)))
    assert sorted(found.key for found in objects.list("many/")) == [f"many/{number:04d}" for number in range(1_050)]


def test_tags_are_set_and_replaced_or_the_store_has_none(
    objects: Objects, warehouse: Warehouse, tmp_path: Path
) -> None:
    large = file_of(tmp_path, content_of(PART_BYTES + 1))
    objects.put_file("small", file_of(tmp_path, b"x"), tags={"state": "building"})
    objects.put_file("large", large, tags={"state": "building", "table": "main.t"})
    if not warehouse.is_s3:
        assert objects.tags("small") is None
        assert objects.tag("small", {"state": "current"}) is False
        return
    assert objects.tags("small") == {"state": "building"}
    assert objects.tags("large") == {"state": "building", "table": "main.t"}
    assert objects.tag("large", {"state": "current = 1+1 @ a:b/c"}) is True
    assert objects.tags("large") == {"state": "current = 1+1 @ a:b/c"}
    assert objects.get("small") == b"x" and len(objects.get("large")) == PART_BYTES + 1
    objects.put_file("bare", file_of(tmp_path, b"x"))
    assert objects.tags("bare") == {}


_PUT = """
import sys
from pathlib import Path
from frazil.storage import Warehouse, open_objects
url, endpoint, key_id, secret, path = sys.argv[1:]
warehouse = Warehouse(url, endpoint=endpoint or None, access_key_id=key_id, secret_access_key=secret)
open_objects(warehouse, "_artifacts").put_file("t/killed", Path(path))
"""


@pytest.mark.parametrize("old", [None, b"the old content"])
def test_a_killed_put_leaves_the_old_object_and_is_swept(
    objects: Objects, warehouse: Warehouse, tmp_path: Path, old: bytes | None
) -> None:
    path = file_of(tmp_path, content_of(PART_BYTES + 1))
    if old is not None:
        objects.put_file("t/killed", file_of(tmp_path, old))
    before = [found.key for found in objects.list()]
    points = ["object_upload_begun", "object_before_complete"] if warehouse.is_s3 else ["object_before_rename"]
    for point in points:
        arguments = [warehouse.url, warehouse.endpoint or "", warehouse.access_key_id, warehouse.secret_access_key]
        killed = subprocess.run(
            [sys.executable, "-c", _PUT, *arguments, str(path)],
            env={**os.environ, "FRAZIL_CRASH_AT": point},
            timeout=60,
        )
        assert killed.returncode == -9
    assert [found.key for found in objects.list()] == before
    if old is not None:
        assert objects.get("t/killed") == old
    assert objects.sweep(older_than_seconds=3600) == 0, "it might still be at work"
    assert objects.sweep(older_than_seconds=-60) == len(points)
    assert objects.sweep(older_than_seconds=-60) == 0
    assert [found.key for found in objects.list()] == before


@pytest.mark.s3
def test_a_store_that_is_gone_and_a_key_that_is_wrong(seaweed: SeaweedServer) -> None:
    gone = Warehouse("s3://lake/x", endpoint="http://127.0.0.1:9", access_key_id="a", secret_access_key="b")
    with pytest.raises(Unavailable) as told:
        open_objects(gone, "a").get("b")
    assert told.value.code == "storage_unavailable" and told.value.transient
    wrong = Warehouse("s3://lake/x", endpoint=seaweed.url, access_key_id="nobody", secret_access_key="b")
    with pytest.raises(Misconfigured) as denied:
        open_objects(wrong, "a").get("b")
    assert denied.value.code == "storage_denied" and "tag" in denied.value.hint


@pytest.mark.s3
@pytest.mark.parametrize("kind", [Kind.SLOW_DOWN, Kind.CUT, Kind.LOSE_REPLY])
def test_every_verb_outlives_a_fault_in_passing(
    seaweed: SeaweedServer, s3_proxy: FaultProxy, tmp_path: Path, kind: Kind
) -> None:
    objects = open_objects(seaweed.warehouse(uuid.uuid4().hex, endpoint=s3_proxy.url), "_artifacts")
    content = content_of(2 * PART_BYTES + 7)
    path = file_of(tmp_path, content)

    def once(does: Callable[[], T]) -> T:
        with s3_proxy.failing(Fault(kind, times=1)) as fault:
            done = does()
        assert len(fault.hits) == 1
        return done

    once(lambda: objects.put_file("small", file_of(tmp_path, b"x")))
    once(lambda: objects.put_file("large", path))
    with s3_proxy.failing(
        Fault(kind, times=1, matches=lambda asked: asked.method == "POST" and "uploadId" in asked.path)
    ):
        objects.put_file("again", path)
    assert once(lambda: {found.key for found in objects.list()}) == {"small", "large", "again"}
    once(lambda: objects.get_file("large", tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content == objects.get("again")
    assert once(lambda: objects.tag("small", {"a": "b"}))
    assert once(lambda: objects.tags("small")) == {"a": "b"}
    once(lambda: objects.delete(["small", "large", "again"]))
    assert list(objects.list()) == []


@pytest.mark.s3
def test_a_fault_that_stays_is_told(seaweed: SeaweedServer, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    objects = open_objects(seaweed.warehouse(uuid.uuid4().hex, endpoint=s3_proxy.url), "_artifacts")
    path = file_of(tmp_path, content_of(PART_BYTES + 1))
    with (
        s3_proxy.failing(Fault(Kind.SLOW_DOWN, matches=lambda asked: "partNumber" in asked.path)),
        pytest.raises(Unavailable, match="503"),
    ):
        objects.put_file("large", path)
    assert list(objects.list()) == []
    assert objects.sweep(older_than_seconds=-60) == 0, "who fails and lives cleans up by itself"
