"""A server's copies: whole or absent, linked where nothing changed, never in the way of what is served."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from frazil.errors import NotFound, Unavailable
from frazil.serving.artifacts import MANIFEST, ArtifactEntry, ArtifactRefused, LocalCopies
from frazil.serving.artifacts import local_copies as fetch_module
from frazil.serving.artifacts.contents import CHUNKS, ROWS, VECTORS, Contents
from frazil.serving.artifacts.engine_versions import running_engines
from frazil.storage import folder_lock as hold_module
from tests.forks import context
from tests.serving.artifacts.killing import Place, a_fetch, killed_at
from tests.serving.artifacts.places import bakery, place
from tests.serving.artifacts.samples import TABLE, Bakery

__all__ = ["bakery", "place"]


def published(place: Place, bakery: Bakery, *, seed: int = 1, salt: str = "") -> ArtifactEntry:
    folder, _ = bakery.bake(seed=seed, salt=salt)
    return place.shelf().publish(folder)


def replaced(place: Place, entry: ArtifactEntry, path: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "replacement").write_bytes(content)
    place.objects().put_file(f"{TABLE}/{entry.generation}/{path}", tmp_path / "replacement")


def left_over(copies: LocalCopies) -> list[str]:
    return [path.name for path in copies.folder.iterdir() if path.name.startswith(".")]


def test_a_copy_is_fetched_once(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    entry = published(place, bakery)
    copies = place.copies(tmp_path / "cache")
    assert copies.generations() == [] == copies.prune(())
    copy = copies.fetch(entry)
    assert copy.folder == tmp_path / "cache" / TABLE / entry.generation
    assert (copy.fetched_bytes, copy.linked_bytes) == (copy.manifest.size, 0)
    assert Contents(copy.folder).rows.num_rows == entry.counts.rows
    place.objects().delete([found.key for found in place.objects().list()])
    again = copies.fetch(entry)
    assert (again.folder, again.fetched_bytes) == (copy.folder, 0), "nothing was asked of the bucket"
    assert copies.generations() == [entry.generation] and left_over(copies) == []


def test_what_did_not_change_is_linked(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    copies = place.copies(tmp_path / "cache")
    first = copies.fetch(published(place, bakery, seed=1))
    second = copies.fetch(published(place, bakery, seed=2))

    def same(path: str) -> bool:
        return (first.folder / path).stat().st_ino == (second.folder / path).stat().st_ino

    assert same(ROWS) and same(CHUNKS) and not same(VECTORS)
    sizes = {file.path: file.size for file in second.manifest.files}
    assert second.fetched_bytes == sizes[VECTORS] and second.linked_bytes == sizes[ROWS] + sizes[CHUNKS]
    first.release()
    assert copies.prune([second.folder.name]) == [first.folder.name]
    assert copies.fetch(place.shelf().register().named(second.folder.name)).fetched_bytes == 0, "it is still whole"


def test_a_file_that_rotted_here_is_not_linked(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    copies = place.copies(tmp_path / "cache")
    first = copies.fetch(published(place, bakery, seed=1))
    spoil(first.folder / ROWS)
    second = copies.fetch(published(place, bakery, seed=2))
    assert (second.folder / ROWS).stat().st_ino != (first.folder / ROWS).stat().st_ino


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.chmod(0o600)
    path.write_bytes(content)


def test_a_copy_that_rotted_is_fetched_again_unless_it_is_served(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    entry = published(place, bakery)
    copies = place.copies(tmp_path / "cache")
    copy = copies.fetch(entry)
    spoil(copy.folder / VECTORS)
    with pytest.raises(ArtifactRefused) as refused:
        copies.fetch(entry)
    assert refused.value.code == "artifact_file_hash"
    assert copy.folder.is_dir(), "it is held"
    copy.release()
    assert copies.fetch(entry).fetched_bytes == copy.manifest.size


def test_damage_on_the_bucket_is_found_and_the_old_copy_stays(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    copies = place.copies(tmp_path / "cache")
    old, new = published(place, bakery, seed=1), published(place, bakery, seed=2, salt="other words")
    copies.fetch(old)
    key = f"{TABLE}/{new.generation}"
    vectors, manifest = place.objects().get(f"{key}/{VECTORS}"), place.objects().get(f"{key}/{MANIFEST}")
    other = place.objects().get(f"{TABLE}/{old.generation}/{VECTORS}")
    for path, content, code in (
        (VECTORS, vectors[:-1] + bytes([vectors[-1] ^ 1]), "artifact_file_hash"),
        (VECTORS, vectors[:-1], "artifact_file_size"),
        (VECTORS, other, "artifact_file_hash"),
        (MANIFEST, manifest + b" ", "artifact_manifest_damaged"),
    ):
        replaced(place, new, path, content, tmp_path)
        with pytest.raises(ArtifactRefused) as refused:
            copies.fetch(new)
        assert refused.value.code == code
        assert copies.generations() == [old.generation] and left_over(copies) == []
        replaced(place, new, VECTORS, vectors, tmp_path)
    replaced(place, new, MANIFEST, manifest, tmp_path)
    place.objects().delete([f"{key}/{VECTORS}"])
    with pytest.raises(NotFound):
        copies.fetch(new)
    replaced(place, new, VECTORS, vectors, tmp_path)
    copies.fetch(new)


def test_an_engine_that_cannot_read_it(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    entry = published(place, bakery)
    copies = place.copies(tmp_path / "cache")
    copies.fetch(entry).release()
    changed = LocalCopies(tmp_path / "cache", place.objects(), TABLE, engines={**running_engines(), "pyarrow": ""})
    changed.fetch(entry).release()
    absent = LocalCopies(tmp_path / "cache", place.objects(), TABLE, engines={})
    with pytest.raises(ArtifactRefused) as refused:
        absent.fetch(entry)
    assert refused.value.code == "artifact_engine_version"
    assert copies.generations() == [entry.generation], "it is not the copy's fault"


def hold_it(place: Place, cache: Path, generation: str, held: Event, enough: Event) -> None:
    copy = place.copies(cache).fetch(place.shelf().register().named(generation))
    held.set()
    enough.wait(60)
    copy.release()


def test_what_another_process_serves_stays_until_that_ends(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    one, two = published(place, bakery, seed=1), published(place, bakery, seed=2)
    copies = place.copies(tmp_path / "cache")
    copies.fetch(one).release()
    copies.fetch(two).release()
    held, enough = context.Event(), context.Event()
    child = context.Process(target=hold_it, args=(place, tmp_path / "cache", one.generation, held, enough))
    child.start()
    try:
        assert held.wait(60)
        assert copies.prune([two.generation]) == []
    finally:
        child.kill()
        child.join(60)
    assert copies.prune([two.generation]) == [one.generation], "a killed process holds nothing"
    assert copies.generations() == [two.generation]


_NAMES = [
    name
    for module in (fetch_module, hold_module)
    for name in re.findall(r"crash_point\(\"(\w+)\"\)", Path(str(module.__file__)).read_text())
]
_POINTS = [*_NAMES, "fetch_file_done:2", "fetch_file_done:3"]


@pytest.mark.parametrize("point", _POINTS)
def test_killed_anywhere_the_old_copy_is_whole_and_the_next_fetch_goes_through(
    place: Place, bakery: Bakery, tmp_path: Path, point: str
) -> None:
    older, old, new = (published(place, bakery, seed=seed) for seed in (1, 2, 3))
    copies = place.copies(tmp_path / "cache")
    copies.fetch(older).release()
    served = copies.fetch(old)
    assert killed_at(point, a_fetch, place, tmp_path / "cache", new.generation, (old.generation,))
    assert {old.generation} <= {*copies.generations()} <= {older.generation, old.generation, new.generation}
    assert copies.fetch(old).fetched_bytes == 0
    copies.fetch(new)
    copies.prune([old.generation, new.generation])
    assert copies.generations() == [old.generation, new.generation] and left_over(copies) == []
    assert Contents(served.folder).rows.num_rows == old.counts.rows


_FULL = """
import dataclasses, sys
from pathlib import Path
from frazil.errors import Unavailable
from frazil.serving.artifacts import LocalCopies, PREFIX, Register
from frazil.serving.artifacts import local_copies as fetch_module
from frazil.serving.artifacts.write import write_artifact
from frazil.serving.artifacts.manifest import MANIFEST, seal_of
from frazil.storage import Warehouse, open_objects
from tests.serving.artifacts.samples import TABLE, source
outside, small, looks_first = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "looks"
objects = open_objects(Warehouse(f"file://{outside}/warehouse"), PREFIX)
def published(name, rows):
    manifest = write_artifact(source(rows, salt=name * 200), outside / name)
    for path in (MANIFEST, *(file.path for file in manifest.files)):
        objects.put_file(f"{TABLE}/{manifest.generation}/{path}", outside / name / path)
    seal = seal_of((outside / name / MANIFEST).read_bytes())
    return Register(TABLE).entered(manifest, seal, 0.0).entries[0]
old, large = published("a", 40), published("b", 40_000)
fetch_module._ROOM_BYTES = 0 if looks_first else -(1 << 40)
copies = LocalCopies(small, objects, TABLE)
served = copies.fetch(old)
try:
    copies.fetch(large)
except Unavailable as error:
    assert error.code == "disk_full" and error.hint, error
    assert ("MB are free" in error.message) == looks_first, error
else:
    raise AssertionError("it fits?")
assert copies.generations() == [old.generation]
assert [path.name for path in copies.folder.iterdir()] == [old.generation]
assert copies.fetch(old).fetched_bytes == 0
print("held")
"""


@pytest.mark.parametrize("how", ["looks", "runs into it"])
def test_a_full_disk_is_told_and_the_old_copy_stays(tmp_path: Path, how: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=4m none '{small}'"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, timeout=30).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    script = f"{mount} && exec '{sys.executable}' -c \"$SCRIPT\" '{tmp_path}' '{small}' '{how}'"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        env={**os.environ, "SCRIPT": _FULL},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "held\n", done.stderr


def test_two_who_want_the_same_wait_for_each_other(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    entry = published(place, bakery)
    copies = place.copies(tmp_path / "cache")
    copies.folder.mkdir(parents=True)
    with hold_module.exclusive(copies.folder), pytest.raises(Unavailable), hold_module.exclusive(copies.folder, 0.1):
        pass
    assert copies.fetch(entry).fetched_bytes
