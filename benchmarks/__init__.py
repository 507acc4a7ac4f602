"""Benchmarks: what the product reaches on this machine, beside a control measured in the same run.

Each file measures one figure and returns a `Report`; `frazil bench` prints it as one JSON line. The ratio is what can
be compared between machines and days: ours and the control take turns, so that both meet the same noise.
"""

from __future__ import annotations

from benchmarks.report import Report

__all__ = ["Report"]
