"""A build that is killed anywhere: what was current stays so, the next process finishes it, and nothing is left."""

from __future__ import annotations

import multiprocessing
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from frazil.errors import FrazilError
from frazil.lake.catalog import Lake
from frazil.registry import job_status
from frazil.serving import child_tasks
from frazil.serving.artifacts import LocalCopies, Shelf
from frazil.serving.artifacts.register import Policy
from frazil.storage import local_path
from tests.kills import address, finished, killed_at
from tests.lake.staging import append
from tests.serving.builds.build_probe import do_builds
from tests.serving.builds.yard import Yard

PATIENCE_SECONDS = 120.0
_Found = TypeVar("_Found")
POINTS = [
    "build_folded",
    "build_embedding_asked",
    "build_begun",
    "build_gathered",
    "build_contents_written",
    "build_part_written:2",
    "build_before_manifest",
    "build_before_publish",
    "artifact_entered",
    "artifact_file_uploaded:3",
    "artifact_uploaded",
    "artifact_published",
    "build_before_keep",
    "artifact_promoted",
    "build_promoted",
]


@pytest.fixture
def yard(lake: Lake, tmp_path: Path) -> Yard:
    found = Yard(lake, tmp_path)
    found.place.declare()
    append(lake, "main.notes", [{"_id": "a", "body": "One."}, {"_id": "b", "body": "Two."}])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_build_that_is_killed_is_finished_by_the_next_process(yard: Yard, point: str) -> None:
    first = yard.build()
    append(yard.lake, "main.notes", [{"_id": "c", "body": "Three."}])
    job = yard.ask()
    words = address(yard.lake), str(yard.folder)
    killed_at(point, do_builds, *words)
    current = yard.current()
    assert current is not None
    held = {row["_id"] for row in yard.fetched().rows}
    if point in ("artifact_promoted", "build_promoted"):
        assert held == {"a", "b", "c"}
    else:
        assert current.generation == first["generation"] and held == {"a", "b"}
    finished(do_builds, *words)
    told = job_status(yard.lake.registry, job.id)
    assert told["state"] == "done" and told["complete"]
    assert {row["_id"] for row in yard.fetched().rows} == {"a", "b", "c"}
    assert len(yard.fetched().vectors) == 3
    assert list((yard.folder / "builds" / "work").iterdir()) == [], "nothing of it is left on this machine"
    _nothing_is_left(yard)


def _nothing_is_left(yard: Yard) -> None:
    """Once the silence of a dead builder is long enough, only what the register names is on the bucket."""
    patient = yard.shelf()
    shelf = Shelf(
        yard.lake.registry, patient.objects, patient.table, policy=Policy(keep=2, grace_seconds=-60, silent_seconds=-60)
    )
    shelf.tidy()
    register = shelf.register()
    assert [entry.state.value for entry in register.entries] == ["previous", "current"]
    on_bucket = {found.key.split("/")[1] for found in shelf.objects.list("main.notes/")}
    assert on_bucket == {entry.generation for entry in register.entries}
    for entry in register.entries:
        LocalCopies(yard.folder / "others", shelf.objects, shelf.table).fetch(entry).release()


@pytest.mark.slow
def test_two_builders_at_once_leave_one_current_artifact(yard: Yard) -> None:
    """The second begins when the first has built and not yet published."""
    other = Yard(yard.lake, yard.folder / "elsewhere")
    told: list[dict[str, object]] = []
    publish = Shelf.publish

    def after_the_other(shelf: Shelf, folder: Path) -> object:
        if not told:
            told.append({})
            append(yard.lake, "main.notes", [{"_id": "c", "body": "Three."}])
            told.append(other.build())
        return publish(shelf, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shelf, "publish", after_the_other)
        mine = yard.build()
    assert mine["built"] and not mine["is_current"], "it is older"
    current = yard.current()
    assert current is not None and current.generation == told[1]["generation"]
    assert {row["_id"] for row in yard.fetched().rows} == {"a", "b", "c"}


@pytest.mark.slow
def test_a_child_that_is_killed_is_told_and_the_next_build_is_whole(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apart = Yard(yard.lake, yard.folder, own_process=True)
    monkeypatch.setenv("FRAZIL_CRASH_AT", "build_part_written")
    with pytest.raises(FrazilError) as lost:
        apart.build()
    assert lost.value.code == "build_process_killed" and "SIGKILL" in lost.value.message and lost.value.hint
    assert yard.current() is None and list((yard.folder / "builds" / "work").iterdir()) == []
    monkeypatch.delenv("FRAZIL_CRASH_AT")
    progress: list[Mapping[str, Any]] = []
    told = apart.builds.run(apart.ask(), progress.append)
    assert told["built"] and told["rows"] == 2 and {"indexed": 0, "of": 2} in progress
    assert {row["_id"] for row in apart.fetched().rows} == {"a", "b"}
    # What the child says of an error is an error of ours.
    append(yard.lake, "main.notes", [{"body": "Three."}])
    yard.place.embed()
    for path in yard.vector_files():
        local_path(path).unlink()
    apart.builds.folder = tmp_path / "without what was kept"
    with pytest.raises(FrazilError) as gone:
        apart.build()
    assert gone.value.code == "file_gone" and gone.value.transient


@pytest.mark.slow
def test_a_child_without_memory_is_an_error_and_nothing_else(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """So little that it cannot even begin; the system says so in its own ways."""
    command = " ".join(map(shlex.quote, child_tasks._COMMAND))
    monkeypatch.setattr(child_tasks, "_COMMAND", ["bash", "-c", f'ulimit -v 300000; exec {command} "$@"', "child"])
    with pytest.raises(FrazilError) as failed:
        Yard(yard.lake, yard.folder, own_process=True).build()
    assert failed.value.code in ("build_out_of_memory", "build_process_lost", "build_process_killed")
    assert yard.current() is None and list((yard.folder / "builds" / "work").iterdir()) == []


@pytest.mark.slow
def test_a_child_ends_with_its_parent(yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    monkeypatch.setenv("FRAZIL_CRASH_TRACE", str(trace))
    monkeypatch.setenv("FRAZIL_PAUSE_AT", "build_gathered")
    yard.ask()
    parent = multiprocessing.get_context("spawn").Process(
        target=do_builds, args=(address(yard.lake), str(yard.folder), True)
    )
    parent.start()
    child = int(_eventually(lambda: (trace / "build_gathered").read_text().strip()))
    assert _is_there(child)
    parent.kill()
    parent.join(PATIENCE_SECONDS)
    _eventually(lambda: not _is_there(child))
    assert yard.current() is None


def _is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def _eventually(look: Callable[[], _Found]) -> _Found:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if found := look():
                return found
        except OSError:
            pass
        assert time.monotonic() < deadline, "it did not come to it"
        time.sleep(0.05)
