"""Chart of recall against latency: an SVG, alone or in a page with the figures below it. Nothing is loaded for it.

Recall is drawn as what is missed, on a scale of factors, as latency is: the step from 0.99 to 0.999 is as large as that
from 0.9 to 0.99. What finds all has a line of its own at the top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT = 880, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 64, 84
_LEAST_MISSED, _MOST_MISSED = 1e-4, 1.0
_KINDS = ("flat", "pq", "ivf", "hnsw", "vss")
# Told apart also by those who see no red or green, on white and on black; and each kind has a shape of its own.
_LIGHT = ("#4b5563", "#0064b0", "#b45309", "#047857", "#a21caf")
_DARK = ("#c3c9d3", "#5cb3ff", "#f5a742", "#3ddc97", "#e58cf0")
_RECALLS = (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
_SAME = ("shelf", "model", "version", "of_vectors", "k", "machine")
Trial = Mapping[str, Any]


@dataclass(frozen=True)
class _Point:
    trial: Trial
    x: float
    y: float
    on_front: bool


def front(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that no other beats in both: none is as fast and finds more, or finds as much and is faster."""
    found: list[Trial] = []
    for trial in sorted(trials, key=lambda one: (one["p50_ms"], -one["recall"])):
        if not found or trial["recall"] > found[-1]["recall"]:
            found.append(trial)
    return found


def drawable(trials: Sequence[Trial]) -> list[Trial]:
    """The trials of indexes that have both figures."""
    return [
        trial
        for trial in trials
        if trial.get("purpose") == "index"
        and trial.get("state") == "ok"
        and trial.get("p50_ms", 0) > 0
        and trial.get("recall") is not None
    ]


def alike(trials: Sequence[Trial]) -> list[Trial]:
    """Those that belong into one picture: of the same data, k and machine as the newest, each configuration once."""
    shown = sorted(drawable(trials), key=lambda trial: str(trial.get("tried_at")))
    latest: dict[str, Trial] = {}
    for trial in shown:
        if all(trial.get(name) == shown[-1].get(name) for name in _SAME):
            latest[short(trial["config"])] = trial
    return list(latest.values())


def svg(trials: Sequence[Trial], title: str) -> str:
    """The chart, a document of its own."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_svg(drawable(trials), title)}'


def page(trials: Sequence[Trial], title: str) -> str:
    """The chart and its figures as one HTML file."""
    shown = drawable(trials)
    on_front = {id(trial) for trial in front(shown)}
    rows = "\n".join(_row(trial, id(trial) in on_front) for trial in sorted(shown, key=lambda one: one["p50_ms"]))
    heads = "".join(f"<th>{head}</th>" for head in _HEADS)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(title)}</title>
<style>{_PAGE_STYLE}</style>
</head>
<body>
{_svg(shown, title)}
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>
"""


def _svg(trials: Sequence[Trial], title: str) -> str:
    low, high = _range([trial["p50_ms"] for trial in trials])
    on_front = {id(trial) for trial in front(trials)}
    points = [
        _Point(trial, _x(trial["p50_ms"], low, high), _y(trial["recall"]), id(trial) in on_front) for trial in trials
    ]
    kinds = [kind for kind in _KINDS if any(trial["kind"] == kind for trial in trials)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="13"'
        ' font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text x="{_LEFT}" y="26" class="ink" font-size="16" font-weight="600">{escape(title)}</text>',
        *_axes(low, high),
        *_legend(kinds),
        *_front_line(points),
        *(_mark(point) for point in sorted(points, key=lambda point: point.on_front)),
        *_labels(points),
        *(() if trials else _nothing()),
        "</svg>",
    ]
    return "\n".join(parts)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Powers of ten, or halves and fifths of them, around all values."""
    least, most = min(values, default=0.1), max(values, default=10.0)
    steps = [factor * 10.0**power for power in range(-5, 7) for factor in (1, 2, 5)]
    low = max((step for step in steps if step <= least * 0.9), default=steps[0])
    high = min((step for step in steps if step >= most * 1.1), default=steps[-1])
    return low, high


def _x(milliseconds: float, low: float, high: float) -> float:
    share = math.log(milliseconds / low) / math.log(high / low)
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(recall: float) -> float:
    missed = min(max(1 - recall, _LEAST_MISSED), _MOST_MISSED)
    share = math.log(missed / _LEAST_MISSED) / math.log(_MOST_MISSED / _LEAST_MISSED)
    return _TOP + share * (HEIGHT - _TOP - _BOTTOM)


def _axes(low: float, high: float) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for recall in _RECALLS:
        y = _y(recall)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        name = "all" if recall == 1 else f"{recall:g}"
        parts.append(f'<text class="faint" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    for power in range(-5, 7):
        for factor in (1, 2, 5):
            value = factor * 10.0**power
            if not low * 0.999 <= value <= high * 1.001:
                continue
            x = _x(value, low, high)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(f'<text class="faint" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{value:g}</text>')
    middle = (_LEFT + right) / 2
    height = (_TOP + bottom) / 2
    upright = f'text-anchor="middle" transform="rotate(-90 20 {height:.0f})"'
    parts.append(
        f'<text class="ink" x="{middle:.0f}" y="{bottom + 38}" text-anchor="middle">median ms of a search</text>'
    )
    parts.append(f'<text class="ink" x="20" y="{height:.0f}" {upright}>recall</text>')
    return parts


def _legend(kinds: Sequence[str]) -> list[str]:
    parts = []
    x, y = float(_LEFT), HEIGHT - 20.0
    for kind in kinds:
        parts.append(f'<path class="{kind}" d="{_shape(kind, x + 6, y - 4)}"/>')
        parts.append(f'<text class="ink" x="{x + 18:.0f}" y="{y:.0f}">{kind}</text>')
        x += 34 + 9 * len(kind)
    parts.append(f'<line class="front" x1="{x:.0f}" x2="{x + 28:.0f}" y1="{y - 4:.0f}" y2="{y - 4:.0f}"/>')
    parts.append(f'<text class="ink" x="{x + 36:.0f}" y="{y:.0f}">nothing is both faster and better</text>')
    return parts


def _front_line(points: Sequence[_Point]) -> list[str]:
    """Steps: up to the next one, what is there is the best."""
    best = sorted((point for point in points if point.on_front), key=lambda point: point.x)
    if len(best) < 2:
        return []
    path = f"M{best[0].x:.1f},{best[0].y:.1f}" + "".join(f"H{one.x:.1f}V{one.y:.1f}" for one in best[1:])
    return [f'<path class="front" d="{path}"/>']


def _mark(point: _Point) -> str:
    trial = point.trial
    kind = trial["kind"] if trial["kind"] in _KINDS else "flat"
    ring = f'<circle class="ring" cx="{point.x:.1f}" cy="{point.y:.1f}" r="10"/>' if point.on_front else ""
    shape = f'<path class="{kind}" d="{_shape(kind, point.x, point.y)}"/>'
    return f"<g>{ring}{shape}<title>{escape(_tooltip(trial))}</title></g>"


def _labels(points: Sequence[_Point]) -> list[str]:
    """The parameters of those on the front, where they do not cover each other."""
    parts: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for point in sorted((one for one in points if one.on_front), key=lambda one: one.x):
        words = short(point.trial["config"])
        wide = 6.4 * len(words)
        x = min(point.x + 14, WIDTH - _RIGHT - wide)
        for y in (point.y + 18, point.y + 34, point.y - 14, point.y + 50):
            if all(abs(y - other) > 14 or x > end or x + wide < start for start, end, other in taken):
                taken.append((x, x + wide, y))
                parts.append(f'<text class="ink label" font-size="12" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>')
                break
    return parts


def _nothing() -> list[str]:
    x, y = WIDTH / 2, HEIGHT / 2
    return [f'<text class="ink" x="{x:.0f}" y="{y:.0f}" text-anchor="middle">no trial has both figures yet</text>']


def _shape(kind: str, x: float, y: float) -> str:
    """A circle, square, triangle, diamond or cross of about the same size."""
    if kind == "flat":
        return f"M{x - 5:.1f},{y:.1f}a5,5 0 1 0 10,0a5,5 0 1 0 -10,0Z"
    if kind == "pq":
        return f"M{x - 4.5:.1f},{y - 4.5:.1f}h9v9h-9Z"
    if kind == "ivf":
        return f"M{x:.1f},{y - 6:.1f}l5.5,10h-11Z"
    if kind == "hnsw":
        return f"M{x:.1f},{y - 6.5:.1f}l6.5,6.5l-6.5,6.5l-6.5,-6.5Z"
    return f"M{x - 5.5:.1f},{y - 2:.1f}h3.5v-3.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5Z"


def short(config: Mapping[str, Any]) -> str:
    """`pq sub_dims 2, candidates 100`."""
    params = ", ".join(f"{name} {value}" for name, value in config.items() if name != "kind")
    return f"{config.get('kind')} {params}".strip()


def _tooltip(trial: Trial) -> str:
    words = [
        short(trial["config"]),
        f"recall@{trial.get('k')} {trial['recall']:.4f}",
        f"p50 {trial['p50_ms']:.3f} ms, p99 {trial.get('p99_ms', 0):.3f} ms",
        f"built in {trial.get('build_seconds', 0):.2f} s",
        f"{_megabytes(trial.get('size_bytes'))} on disk, {_megabytes(trial.get('memory_bytes'))} in memory",
        f"{trial.get('vectors', 0):,} vectors, run {trial.get('run')}",
    ]
    return "\n".join(words)


def _megabytes(size: int | None) -> str:
    return "?" if size is None else f"{size / (1 << 20):,.1f} MB"


_HEADS = ("index", "recall", "p50 ms", "p99 ms", "build s", "disk", "memory", "vectors", "tried")


def _row(trial: Trial, on_front: bool) -> str:
    cells = (
        escape(short(trial["config"])),
        f"{trial['recall']:.4f}",
        f"{trial['p50_ms']:.3f}",
        f"{trial.get('p99_ms', 0):.3f}",
        f"{trial.get('build_seconds', 0):.2f}",
        _megabytes(trial.get("size_bytes")),
        _megabytes(trial.get("memory_bytes")),
        f"{trial.get('vectors', 0):,}",
        escape(str(trial.get("tried_at", ""))[:16].replace("T", " ")),
    )
    mark = ' class="best"' if on_front else ""
    return f"<tr{mark}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _colours(colours: Sequence[str]) -> str:
    return "".join(f".{kind}{{fill:{colour}}}" for kind, colour in zip(_KINDS, colours, strict=True))


_STYLE = (
    ".label{paint-order:stroke;stroke-width:4px;stroke:#fff}.paper{fill:#fff}.ink{fill:#111827}.faint{fill:#4b5563}.grid{stroke:#e5e7eb}"
    ".front{stroke:#6b7280;stroke-width:1.5;stroke-dasharray:5 4;fill:none}.ring{fill:none;stroke:#111827}"
    + _colours(_LIGHT)
    + "@media (prefers-color-scheme:dark){.label{stroke:#111418}.paper{fill:#111418}.ink{fill:#f3f4f6}"
    ".faint{fill:#b6bdc8}.grid{stroke:#2b3138}.front{stroke:#9ca3af}.ring{stroke:#f3f4f6}" + _colours(_DARK) + "}"
)
_PAGE_STYLE = (
    ":root{color-scheme:light dark}body{font:14px system-ui,sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem;"
    "background:#fff;color:#111827}svg{width:100%;height:auto}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid #e5e7eb}th{color:#4b5563;font-weight:500}"
    "td,th{white-space:nowrap}th:first-child,td:first-child{text-align:left;white-space:normal}"
    ".best td{font-weight:600}"
    "@media (prefers-color-scheme:dark){body{background:#111418;color:#f3f4f6}th,td{border-color:#2b3138}"
    "th{color:#b6bdc8}}"
)
