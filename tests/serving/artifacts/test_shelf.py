"""The shelf on real stores with a real registry: what is current, what may go, who may read; killed at every step."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.errors import Conflict, NotFound, Unavailable
from frazil.serving.artifacts import MANIFEST, ArtifactRefused, ArtifactState, Manifest, Shelf
from frazil.serving.artifacts import shelf as shelf_module
from frazil.serving.artifacts.manifest import new_generation
from frazil.serving.artifacts.register import READABLE, Policy
from frazil.serving.artifacts.shelf import Tidied
from frazil.serving.artifacts.verify import verify_artifact
from tests.serving.artifacts.killing import AGED, Place, a_clearance, a_round, killed_at
from tests.serving.artifacts.places import bakery, place
from tests.serving.artifacts.samples import TABLE, Bakery

__all__ = ["bakery", "place"]


def states(shelf: Shelf) -> dict[str, str]:
    return {entry.generation: entry.state.value for entry in shelf.register().entries}


def on_the_bucket(shelf: Shelf) -> set[str]:
    return {found.key.split("/")[1] for found in shelf.objects.list(f"{TABLE}/")}


def filled(shelf: Shelf, bakery: Bakery, number: int) -> list[str]:
    """So many artifacts, promoted one after the other."""
    made = []
    for at in range(number):
        folder, manifest = bakery.bake(watermark=(at + 1) << 20)
        shelf.publish(folder)
        shelf.promote(manifest.generation)
        made.append(manifest.generation)
    return made


def test_from_a_folder_to_current(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    shelf = place.shelf()
    folder, manifest = bakery.bake()
    entry = shelf.publish(folder)
    assert entry.state is ArtifactState.CANDIDATE and entry.cut == manifest.cut and entry.counts == manifest.counts
    assert {found.key for found in shelf.objects.list()} == {
        f"{TABLE}/{manifest.generation}/{path}" for path in (*(file.path for file in manifest.files), MANIFEST)
    }
    assert shelf.promote(manifest.generation).state is ArtifactState.CURRENT
    assert place.shelf().register().current == shelf.register().current
    with pytest.raises(Conflict):
        shelf.publish(folder)


def test_a_damaged_folder_is_not_published(place: Place, bakery: Bakery) -> None:
    folder, manifest = bakery.bake()
    path = folder / manifest.files[0].path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactRefused):
        place.shelf().publish(folder)
    assert states(place.shelf()) == {} and on_the_bucket(place.shelf()) == set()


def test_tags_follow_the_register(place: Place, bakery: Bakery) -> None:
    shelf = place.shelf()
    first, second, third = filled(shelf, bakery, 3)
    for generation, state in ((first, "stale"), (second, "previous"), (third, "current")):
        for found in shelf.objects.list(f"{TABLE}/{generation}/"):
            tags = shelf.objects.tags(found.key)
            if place.warehouse.is_s3:
                assert tags == {"frazil-state": state, "frazil-table": TABLE, "frazil-generation": generation}
            else:
                assert tags is None
    if place.warehouse.is_s3:
        shelf.objects.tag(shelf.key(third, MANIFEST), {"frazil-state": "something else"})
        assert place.shelf().tidy().tagged == (third,)
    assert place.shelf().tidy() == Tidied()


def test_rollback_and_the_way_forward(place: Place, bakery: Bakery) -> None:
    shelf = place.shelf()
    first, second = filled(shelf, bakery, 2)
    back = shelf.rollback("wrong answers", failed=second)
    assert back and back.generation == first
    assert shelf.rollback("wrong answers", failed=second) == shelf.register().current
    assert states(shelf) == {first: "current", second: "stale"}
    with pytest.raises(Conflict, match="wrong answers"):
        shelf.promote(second)
    folder, third = bakery.bake(watermark=3 << 20)
    shelf.publish(folder)
    shelf.promote(third.generation)
    assert states(shelf) == {first: "previous", second: "stale", third.generation: "current"}
    with pytest.raises(NotFound):
        shelf.promote("20000101t000000000-00000000")


def test_old_ones_go_but_not_what_is_current_previous_kept_or_read(place: Place, bakery: Bakery) -> None:
    shelf = place.shelf(AGED)
    made = filled(shelf, bakery, 5)
    assert place.shelf().tidy() == Tidied(), "by default they stay for long"
    entry = shelf.take("replica-1", made[1])
    assert entry.generation == made[1]
    tidied = shelf.tidy()
    assert tidied.removed == (made[0], made[2]) and tidied.spared == (made[1],)
    assert on_the_bucket(shelf) == set(states(shelf)) == {made[1], made[3], made[4]}
    shelf.serve("replica-1", [made[4]])
    assert shelf.tidy().removed == (made[1],)
    assert states(shelf) == {made[3]: "previous", made[4]: "current"}
    assert shelf.tidy() == Tidied()
    with pytest.raises(NotFound):
        shelf.take("replica-1", made[0])


def test_a_reader_that_fell_silent_holds_nothing(place: Place, bakery: Bakery) -> None:
    shelf = place.shelf(AGED)
    made = filled(shelf, bakery, 3)
    shelf.take("dead", made[0])
    assert shelf.tidy().spared == (made[0],)
    later = place.shelf(AGED)
    later._clock = lambda: time.time() + 61
    assert later.leases() == []
    assert later.tidy().removed == (made[0],)
    later._clock = lambda: time.time() + 100_000
    later.tidy()
    assert later._registry.list("artifact-reader/") == [], "nor is it remembered for ever"
    shelf.take("other", made[2])
    shelf.leave("other")
    shelf.leave("nobody")
    assert shelf.leases() == []


@pytest.mark.parametrize("looked_first", [True, False])
def test_a_reader_that_comes_between_is_seen(
    place: Place, bakery: Bakery, monkeypatch: pytest.MonkeyPatch, looked_first: bool
) -> None:
    """Between the mark in the register and the deletion, someone takes it: one of the two sees the other."""
    shelf = place.shelf(AGED)
    made = filled(shelf, bakery, 3)
    answers: list[str] = []

    def reader_first(name: str) -> None:
        if name == "artifact_doomed" and not answers:
            reader = place.shelf()
            if looked_first:  # it said so before the mark, and is only seen now
                reader.serve("quick", [made[0]])
                answers.append("reads")
                return
            with pytest.raises(Conflict) as refused:
                reader.take("quick", made[0])
            answers.append(refused.value.code)

    monkeypatch.setattr(shelf_module, "crash_point", reader_first)
    tidied = shelf.tidy()
    assert answers == ["reads" if looked_first else "artifact_incomplete"]
    assert tidied.spared == (made[0],) and tidied.removed == ()
    assert states(shelf)[made[0]] == "removing" and made[0] in on_the_bucket(shelf)
    assert shelf.tidy().spared == (made[0],), "as long as it is held"
    shelf.leave("quick")
    assert shelf.tidy().removed == (made[0],)
    assert made[0] not in on_the_bucket(shelf)


def test_many_at_once_agree_on_one(place: Place, bakery: Bakery) -> None:
    """Four publish and promote what they built: in whatever order, the newest state is current at the end."""
    built = [bakery.bake(watermark=(number + 1) << 20) for number in range(4)]

    shelves = [place.shelf() for _ in built]

    def work(shelf: Shelf, item: tuple[Path, Manifest]) -> str:
        shelf.publish(item[0])
        try:
            return shelf.promote(item[1].generation).state.value
        except Conflict as refused:
            return refused.code

    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(work, shelves, built)} <= {"current", "artifact_older"}
    register = place.shelf().register()
    assert len(register.entries) == 4
    assert register.current and register.current.generation == built[-1][1].generation


def test_builders_readers_and_cleaners_at_once(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    """Whatever a reader was given stays whole as long as it holds it, while everything old is removed at once."""
    policy = replace(AGED, keep=1, silent_seconds=3600)
    built = [[bakery.bake(watermark=(4 * at + who) << 20) for at in range(4)] for who in range(2)]
    filled(place.shelf(), bakery, 2)
    done = threading.Event()
    shelves = [place.shelf(policy) for _ in range(6)]

    def builder(shelf: Shelf, artifacts: list[tuple[Path, Manifest]]) -> int:
        for folder, manifest in artifacts:
            shelf.publish(folder)
            with contextlib.suppress(Conflict, NotFound):  # without any grace, a candidate may be gone already
                shelf.promote(manifest.generation)
            with contextlib.suppress(Conflict):
                shelf.rollback("for a change")
        return len(artifacts)

    def cleaner(shelf: Shelf) -> int:
        removed = 0
        while not done.is_set():
            removed += len(shelf.tidy().removed)
        return removed

    def reader(shelf: Shelf, name: str) -> int:
        reads = 0
        copies = place.copies(tmp_path / name)
        while not (done.is_set() and reads):
            entries = [entry for entry in shelf.register().entries if entry.state in READABLE]
            wanted = random.choice(entries).generation
            try:
                entry = shelf.take(name, wanted)
            except (Conflict, NotFound):
                continue
            copies.fetch(entry).release()
            copies.prune(())
            reads += 1
        return reads

    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(cleaner, shelves[2]), pool.submit(cleaner, shelves[3])]
        others += [pool.submit(reader, shelves[4], "r4"), pool.submit(reader, shelves[5], "r5")]
        try:
            assert list(pool.map(builder, shelves[:2], built, timeout=120)) == [4, 4]
        finally:
            done.set()
        first, second, *reads = [other.result(60) for other in others]
    assert min(reads) > 0
    for name in ("r4", "r5"):
        place.shelf().leave(name)
    assert first + second + len(place.shelf(policy).tidy().removed) > 0
    register = place.shelf().register()
    assert on_the_bucket(place.shelf()) == {entry.generation for entry in register.entries}
    assert register.current and len(register.entries) <= 2
    check_all_is_well(place, tmp_path)


def test_files_that_nobody_knows_go_after_a_while(place: Place, bakery: Bakery, tmp_path: Path) -> None:
    shelf = place.shelf(AGED)
    folder, manifest = bakery.bake()
    lost = new_generation()
    for path in (MANIFEST, manifest.files[0].path):
        shelf.objects.put_file(f"{TABLE}/{lost}/{path}", folder / path)
    shelf.objects.put_file(f"{TABLE}.other/{lost}/{MANIFEST}", folder / MANIFEST)
    assert shelf.tidy() == Tidied(), "without a register nothing is known, and nothing is deleted"
    (made,) = filled(shelf, bakery, 1)
    assert place.shelf(replace(AGED, silent_seconds=3600)).tidy().orphans == (), "it may be on its way"
    assert shelf.tidy().orphans == (lost,)
    assert on_the_bucket(shelf) == {made}
    assert len(list(shelf.objects.list(f"{TABLE}.other/"))) == 1, "that is another table"


def test_a_builder_that_was_taken_for_dead_is_told(
    place: Place, bakery: Bakery, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(place.shelf(), bakery, 1)
    folder, manifest = bakery.bake(watermark=9 << 20)

    def slow(name: str) -> None:
        if name == "artifact_uploaded":
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(shelf_module, "crash_point", lambda name: None)
                assert place.shelf(AGED).tidy().removed == (manifest.generation,)

    monkeypatch.setattr(shelf_module, "crash_point", slow)
    with pytest.raises(Conflict) as refused:
        place.shelf().publish(folder)
    assert refused.value.code == "artifact_given_up"
    assert manifest.generation not in on_the_bucket(place.shelf())


def test_a_slow_builder_gives_signs_of_life(place: Place, bakery: Bakery, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = place.shelf(Policy(silent_seconds=60))
    folder, manifest = bakery.bake()
    start, uploads = time.time(), 0
    shelf._clock = lambda: start + 40 * uploads

    def one_more(name: str) -> None:
        nonlocal uploads
        if name == "artifact_file_uploaded":
            uploads += 1
            watcher = place.shelf(Policy(silent_seconds=60))
            watcher._clock = shelf._clock
            assert watcher.tidy().removed == ()

    monkeypatch.setattr(shelf_module, "crash_point", one_more)
    assert shelf.publish(folder).state is ArtifactState.CANDIDATE
    assert uploads == len(manifest.files) + 1 and 40 * uploads > 60


def test_an_upload_that_is_not_what_was_sent_is_no_candidate(
    place: Place, bakery: Bakery, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = place.shelf()
    folder, manifest = bakery.bake()

    def lose_one(name: str) -> None:
        if name == "artifact_file_uploaded":
            shelf.objects.delete([shelf.key(manifest.generation, manifest.files[0].path)])

    monkeypatch.setattr(shelf_module, "crash_point", lose_one)
    with pytest.raises(Unavailable) as refused:
        shelf.publish(folder)
    assert refused.value.code == "artifact_upload_torn"
    assert states(shelf) == {manifest.generation: "building"}


_NAMES = re.findall(r"crash_point\(\"(\w+)\"\)", Path(shelf_module.__file__).read_text())
# How often each is reached in a round: a kill at each time is another one.
_TIMES = {"artifact_file_uploaded": 4, "artifact_object_tagged": 24, "artifact_file_deleted": 9}
_OF_CLEARING = ["artifact_manifest_deleted", "artifact_file_deleted:3", "artifact_shelf_cleared"]
_POINTS = [name for name in _NAMES if name not in _TIMES and name not in _OF_CLEARING[2:]]
_POINTS += [f"{name}:{nth}" for name, times in _TIMES.items() for nth in sorted({1, 2, times // 2, times})]


# The store's own; in a bucket a file this small is one request.
_POINTS += ["object_before_rename:1", "object_before_rename:3"]


_LATER = [point for point in _POINTS if ":" in point and not point.endswith(":1")]


def check_all_is_well(place: Place, tmp_path: Path) -> None:
    """What the register calls complete is so, byte for byte; nothing else is on the bucket once it was tidied."""
    shelf = place.shelf(AGED)
    for number, entry in enumerate(entry for entry in shelf.register().entries if entry.state in READABLE):
        folder = tmp_path / f"look-{time.monotonic_ns()}-{number}"
        folder.mkdir()
        for found in shelf.objects.list(f"{TABLE}/{entry.generation}/"):
            shelf.objects.get_file(found.key, folder / found.key.rpartition("/")[2])
        verify_artifact(folder, table=TABLE, generation=entry.generation, seal=entry.seal)


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=[pytest.mark.slow] if point in _LATER else []) for point in _POINTS],
)
def test_killed_anywhere_the_shelf_is_right_and_tidying_converges(
    place: Place, bakery: Bakery, tmp_path: Path, point: str
) -> None:
    shelf = place.shelf()
    old = filled(shelf, bakery, 3)
    shelf.objects.put_file(f"{TABLE}/{new_generation()}/rows.arrow", bakery.bake()[0] / "rows.arrow")
    folder, new = bakery.bake(watermark=9 << 20)

    reached = killed_at(point, a_round, place, folder, AGED)
    if point.startswith("artifact_object_tagged" if not place.warehouse.is_s3 else "object_before_rename"):
        assert not reached, "a folder has no tags, and a bucket no renaming"
        return
    assert reached

    after = shelf.register()
    assert after.current and after.previous
    assert {after.current.generation, after.previous.generation} <= {*old[1:], new.generation}
    check_all_is_well(place, tmp_path)

    # Whoever comes next tidies up; a second time there is nothing to do.
    tidier = place.shelf(AGED)
    tidier.tidy()
    assert tidier.tidy() == Tidied()
    now = tidier.register()
    assert now.current == after.current and now.previous == after.previous
    assert all(entry.state in READABLE for entry in now.entries)
    assert on_the_bucket(tidier) == {entry.generation for entry in now.entries}
    if not place.warehouse.is_s3:
        left = [path for path in place.warehouse.folder().rglob("*") if path.is_file()]
        assert len(left) == len(list(tidier.objects.list())), "nor is anything half-written left"
    check_all_is_well(place, tmp_path)

    # And the next build goes its way.
    again, newest = bakery.bake(watermark=10 << 20)
    tidier.publish(again)
    assert tidier.promote(newest.generation).state is ArtifactState.CURRENT


@pytest.mark.parametrize("point", _OF_CLEARING)
def test_a_table_that_goes_takes_its_artifacts_along(place: Place, bakery: Bakery, point: str) -> None:
    shelf = place.shelf()
    made = filled(shelf, bakery, 2)
    shelf.take("reader", made[1])
    shelf.objects.put_file(f"{TABLE}.other/x/{MANIFEST}", bakery.bake()[0] / MANIFEST)
    assert killed_at(point, a_clearance, place)
    assert not any(entry.state in READABLE for entry in shelf.register().entries), "nobody begins to read it"
    shelf.clear()
    shelf.clear()
    assert states(shelf) == {} and on_the_bucket(shelf) == set()
    assert len(list(shelf.objects.list())) == 1, "that is another table's"
    shelf.objects.put_file(f"{TABLE}/{made[0]}/late", bakery.bake()[0] / MANIFEST)
    assert place.shelf(AGED).tidy().orphans == (made[0],), "what a builder still uploaded"
    filled(shelf, bakery, 1)


def test_every_crash_point_of_the_shelf_is_killed_at() -> None:
    assert {point.partition(":")[0] for point in _POINTS + _OF_CLEARING} >= set(_NAMES) and len(_NAMES) >= 10
