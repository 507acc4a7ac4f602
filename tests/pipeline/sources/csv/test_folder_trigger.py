"""A watched folder asks for what is new or changed, once it is still."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.lake.catalog import Lake, open_lake
from frazil.pipeline import WatchSettings
from frazil.pipeline.sources.csv import FolderTrigger
from frazil.registry import Job, finish_job, open_jobs
from frazil.storage import Warehouse

START = datetime(2026, 11, 16, tzinfo=UTC)


class Watched:
    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake
        self.folder = folder
        folder.mkdir()
        self._now = START
        self.restart()

    def restart(self) -> None:
        settings = WatchSettings(folder=self.folder, table="dropped", pattern="*.csv*", look_seconds=2.0)
        self._watch = FolderTrigger("inbox", settings, self.lake.registry)

    def looks(self, times: int) -> list[str]:
        """Look so often, two seconds apart; the files that are asked for then."""
        for _ in range(times):
            self._now += timedelta(seconds=2)
            self._watch.poll(self._now)
        return self.asked()

    def asked(self) -> list[str]:
        return [Path(file).name for job in self.jobs() for file in job.params["files"]]

    def jobs(self) -> list[Job]:
        return open_jobs(self.lake.registry, ["csv"])

    def done(self) -> None:
        for job in self.jobs():
            finish_job(self.lake.registry, job, {"state": "done"})


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    lake = open_lake(f"sqlite:///{tmp_path}/catalog.db", Warehouse(f"file://{tmp_path}/warehouse"))
    yield Watched(lake, tmp_path / "inbox")
    lake.close()


def test_a_file_is_asked_for_once_it_is_still(watched: Watched) -> None:
    assert watched.looks(2) == []
    path = watched.folder / "a.csv"
    path.write_text("n\n1\n")
    assert watched.looks(1) == [], "it may still be written to"
    path.write_text("n\n1\n2\n")
    assert watched.looks(1) == []
    assert watched.looks(1) == ["a.csv"]
    (job,) = watched.jobs()
    assert (job.params["table"], job.params["source"], job.asked_by) == (
        "main.dropped",
        "csv:watch/inbox",
        "watch inbox",
    )
    watched.done()
    assert watched.looks(3) == [], "once"
    path.write_text("n\n3\n")
    assert watched.looks(2) == ["a.csv"], "and again when it changed"


def test_what_is_not_meant_or_not_finished_is_left_alone(watched: Watched) -> None:
    for name in (".hidden.csv", "a.csv.part", "b.csv.tmp", "c.csv~", "notes.md"):
        (watched.folder / name).write_text("n\n1\n")
    (watched.folder / "folder.csv").mkdir()
    (watched.folder / "packed.csv.gz").write_bytes(b"x")
    assert watched.looks(3) == ["packed.csv.gz"]


def test_what_comes_during_a_load_is_loaded_together_after_it(watched: Watched) -> None:
    (watched.folder / "a.csv").write_text("n\n1\n")
    assert watched.looks(2) == ["a.csv"]
    for name in ("b.csv", "c.csv"):
        (watched.folder / name).write_text(name)
    assert watched.looks(3) == ["a.csv"]
    watched.done()
    assert watched.looks(1) == ["b.csv", "c.csv"] and len(watched.jobs()) == 1


def test_after_a_start_everything_is_asked_for_again(watched: Watched) -> None:
    """The load itself finds by the content what was loaded before."""
    (watched.folder / "a.csv").write_text("n\n1\n")
    watched.looks(2)
    watched.done()
    watched.restart()
    assert watched.looks(2) == ["a.csv"]


def test_a_folder_that_is_not_there_yet_is_waited_for(watched: Watched) -> None:
    watched.folder.rmdir()
    assert watched.looks(2) == []
    watched.folder.mkdir()
    (watched.folder / "a.csv").write_text("n\n")
    assert watched.looks(2) == ["a.csv"]


def test_it_does_not_look_more_often_than_it_should(watched: Watched) -> None:
    (watched.folder / "a.csv").write_text("n\n")
    for _ in range(20):
        watched._now += timedelta(seconds=0.1)
        watched._watch.poll(watched._now)
    assert watched.asked() == []
