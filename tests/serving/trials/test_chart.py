from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from frazil.serving.trials.chart import alike, drawable, front, page, svg
from tests.serving.trials.conftest import trial

SVG = "{http://www.w3.org/2000/svg}"
NASTY = '</svg><script>alert(1)</script> & "quoted" \']]>'


def point(recall: float, p50_ms: float, kind: str = "pq", **more: Any) -> dict[str, Any]:
    return trial(kind=kind, config={"kind": kind, "candidates": 50}, recall=recall, p50_ms=p50_ms, **more)


def some(count: int = 30) -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    kinds = ("flat", "pq", "ivf", "hnsw", "vss")
    return [
        point(float(1 - random.random() ** 3), float(10 ** random.uniform(-2, 2)), kinds[number % 5])
        for number in range(count)
    ]


def test_the_front_is_what_nothing_beats() -> None:
    trials = some(60)
    best = front(trials)
    for one in trials:
        beaten = any(
            other["recall"] >= one["recall"]
            and other["p50_ms"] <= one["p50_ms"]
            and (other["recall"], other["p50_ms"]) != (one["recall"], one["p50_ms"])
            for other in trials
        )
        assert (one in best) != beaten


@pytest.mark.parametrize("trials", [[], some(1), some(), [point(1.0, 0.001), point(0.0, 60_000.0)]])
def test_the_chart_is_xml_with_a_mark_for_each_trial_inside_its_frame(trials: list[dict[str, Any]]) -> None:
    root = ET.fromstring(svg(trials, "notes"))  # noqa: S314 - our own
    marks = list(root.iter(f"{SVG}g"))
    assert len(marks) == len(trials)
    for mark in marks:
        title = mark.find(f"{SVG}title")
        assert title is not None and "recall@10" in (title.text or "") and "ms" in (title.text or "")
    numbers = [float(ring.get("cx", "")) for ring in root.iter(f"{SVG}circle")]
    assert len(numbers) == len(front(trials)) and all(0 < number < 880 for number in numbers)


def test_what_users_wrote_stays_text() -> None:
    trials = [point(0.9, 1.0, run=NASTY, tried_at=NASTY)]
    trials[0]["config"] = {"kind": "pq", NASTY: 1}
    root = ET.fromstring(svg(trials, NASTY))  # noqa: S314 - our own
    title = root.find(f"{SVG}title")
    assert title is not None and title.text == NASTY
    assert not list(root.iter(f"{SVG}script")) and not list(root.iter("script"))
    seen: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            seen.append(tag)

    text = page(trials, NASTY)
    Tags().feed(text)
    assert "script" not in seen and {"svg", "table"} <= set(seen)
    assert seen.count("tr") == 2
    for word in ("http://", "https://", "@import", "url(", "src="):
        assert word not in text.replace("http://www.w3.org/2000/svg", "")


def test_only_what_has_both_figures_is_drawn() -> None:
    rows = [point(1.0, 1.0), point(1.0, 1.0, state="failed"), point(1.0, 1.0, purpose="model"), point(1.0, 0.0)]
    assert drawable(rows) == rows[:1]


def test_one_picture_has_what_can_be_compared_each_configuration_as_it_was_last() -> None:
    old = [point(0.5, 1.0, tried_at="1", of_vectors=10), point(0.6, 1.0, tried_at="2", machine="another")]
    twice = [point(0.7, 1.0, tried_at="3"), point(0.8, 1.0, tried_at="4"), point(0.9, 1.0, "ivf", tried_at="5")]
    assert alike([*twice, *old]) == twice[1:] and alike([]) == []
