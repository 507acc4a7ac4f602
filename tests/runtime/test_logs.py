from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.runtime.logs import last_lines, rotate, set_up


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.mark.usefixtures("_logging_as_before")
def test_lines_are_json_with_correlation_keys() -> None:
    out = io.StringIO()
    set_up("pipeline", stream=out)
    set_up("pipeline", stream=out)
    logging.getLogger("x").info("committed %d", 5, extra={"table": "main.t", "batch": "b1", "snapshot": 7, "rows": 3})
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("x").exception("failed")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert first.pop("ts").endswith("+00:00")
    assert first == {
        "level": "info",
        "part": "pipeline",
        "msg": "committed 5",
        "table": "main.t",
        "batch": "b1",
        "snapshot": 7,
        "rows": 3,
        "logger": "x",
    }
    assert "ValueError: why" in second["error"]


def test_a_large_log_is_put_aside_and_the_oldest_forgotten(tmp_path: Path) -> None:
    log = tmp_path / "bus.log"
    for content in ("first", "second", "third", "fourth", "fifth"):
        log.write_text(content)
        rotate(log, max_bytes=1, kept=3)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "bus.log.1": "fifth",
        "bus.log.2": "fourth",
        "bus.log.3": "third",
    }
    log.write_text("small")
    rotate(log, max_bytes=100)
    assert log.read_text() == "small"


def test_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_lines(log) == []
    log.write_bytes(b"".join(b"line %d\n\n" % i for i in range(10_000)) + b"\xff end\n")
    assert last_lines(log, 2) == ["line 9999", "\ufffd end"]
