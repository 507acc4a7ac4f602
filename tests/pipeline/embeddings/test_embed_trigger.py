"""When a table is embedded by itself, by a clock that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from frazil.lake.catalog import Lake
from frazil.pipeline import PipelineSettings
from frazil.pipeline.embeddings import EmbedTrigger
from frazil.registry import finish_job, open_jobs
from frazil.requests import EMBED
from tests.pipeline.embeddings.place import Place


class Clock:
    """Looks by the timer, and what it asks for."""

    def __init__(self, place: Place, **settings: float) -> None:
        self.place = place
        self.now = datetime.now(UTC)
        self.settings = PipelineSettings.model_validate({"embed_seconds": 900, "embed_after_rows": 50, **settings})
        self.timer = EmbedTrigger(place.lake, self.settings)

    def after(self, seconds: float) -> list[str]:
        self.now += timedelta(seconds=seconds)
        self.timer.poll(self.now)
        return [job.subject for job in open_jobs(self.place.lake.registry, [EMBED.name])]

    def do(self, *, fail: bool = False) -> None:
        for job in open_jobs(self.place.lake.registry, [EMBED.name]):
            result = {"state": "failed"} if fail else self.place.job.run(job, lambda progress: None)
            finish_job(self.place.lake.registry, job, result)


@pytest.fixture
def place(lake: Lake) -> Place:
    found = Place(lake)
    found.declare()
    return found


def test_the_first_rows_are_embedded_soon_and_later_ones_at_the_cadence(place: Place) -> None:
    clock = Clock(place)
    assert clock.after(10) == [], "there is nothing yet"
    place.add([{"body": "One."}])
    assert clock.after(10) == ["main.notes"]
    assert clock.after(2000) == ["main.notes"], "one at a time"
    clock.do()
    assert clock.after(2000) == [], "nothing is new"
    place.add([{"body": "Two."}])
    (asked_at,) = {row["embedded_at"] for row in place.vectors()}
    clock.now = asked_at
    clock.timer = EmbedTrigger(place.lake, clock.settings)
    assert clock.after(100) == []
    assert clock.after(790) == []
    assert clock.after(20) == ["main.notes"]
    clock.do()
    assert len(place.vectors()) == 2


def test_many_new_rows_do_not_wait(place: Place) -> None:
    clock = Clock(place)
    place.add([{"body": "One."}])
    clock.after(10)
    clock.do()
    place.add([{"body": f"Row {n}."} for n in range(49)])
    assert clock.after(10) == []
    place.add([{"body": "And another."}])
    assert clock.after(10) == ["main.notes"]


def test_a_run_that_fails_is_asked_for_again_at_the_cadence(place: Place) -> None:
    clock = Clock(place)
    place.add([{"body": f"Row {n}."} for n in range(100)])
    assert clock.after(10) == ["main.notes"]
    clock.do(fail=True)
    assert clock.after(10) == [] and clock.after(600) == []
    assert clock.after(400) == ["main.notes"]


def test_tables_without_search_and_a_cadence_of_never(place: Place) -> None:
    place.declare(name="plain", text=[], search=None)
    place.add([{"body": "One."}], "main.plain")
    clock = Clock(place)
    assert clock.after(10) == []
    place.add([{"body": "One."}])
    assert Clock(place, embed_seconds=0).after(10) == []
    assert clock.after(10) == ["main.notes"]
    clock.do()
    assert clock.after(5000) == [], "nor are vectors embedded"
