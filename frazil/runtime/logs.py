"""Structured logs: one JSON object a line, with the keys that lead from one part's lines to another's.

`log.info("committed", extra={"table": t, "batch": b, "snapshot": s})`: the correlation keys, and any other `extra`,
become fields of the line.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

CORRELATION_KEYS = ("table", "batch", "snapshot", "token", "event")
MAX_LOG_BYTES = 16 << 20
KEPT_LOGS = 3

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": self._part,
            "msg": record.getMessage(),
        }
        line |= {key: value for key in CORRELATION_KEYS if (value := getattr(record, key, None)) is not None}
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in line}
        line["logger"] = record.name
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def set_up(part: str, *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send all log lines of this process to `stream` (standard error) as JSON. Twice is the same as once."""
    target = logging.StreamHandler(stream or sys.stderr)
    target.setFormatter(JsonLines(part))
    root = logging.getLogger()
    root.handlers[:] = [target]
    root.setLevel(level)
    logging.captureWarnings(True)
    # These say on every request or call what our own lines say once and with the correlation keys.
    for chatty in ("httpx", "httpcore", "py4j", "pyiceberg", "uvicorn.access", "faiss.loader"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def rotate(path: Path, *, max_bytes: int = MAX_LOG_BYTES, kept: int = KEPT_LOGS) -> None:
    """Put a log that has grown large aside as `<name>.1`, older ones one further, and forget the oldest."""
    if not path.exists() or path.stat().st_size < max_bytes:
        return
    for number in range(kept - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def last_lines(path: Path, count: int = 8) -> list[str]:
    """The end of a log, for the screen of somebody whose part did not start."""
    if not path.exists():
        return []
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - 32_768))
        text = log.read().decode(errors="replace")
    return [line.rstrip()[:500] for line in text.splitlines() if line.strip()][-count:]
