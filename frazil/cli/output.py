"""Output of verbs: answers as text or JSON, errors in two lines, and streams that take every character."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from frazil.errors import FrazilError, Misconfigured, Unavailable

if TYPE_CHECKING:
    from rich.console import Console

Body = TypeVar("Body")

_SUBSTITUTES = {"–": "-", "…": "...", "·": "-", "←": "<-", "▸": ">", "✔": "+", "✘": "x", "■": "-"}
"""Our own typography in characters of every terminal."""


@dataclass(frozen=True)
class Output:
    """Standard output of one verb: JSON for programs, or text for people."""

    as_json: bool

    def show(self, body: Body, render: Callable[[Body], None]) -> None:
        """Print the body as JSON, or have it rendered as text."""
        if self.as_json:
            print_json(body)
        else:
            render(body)

    def line(self, body: Any, text: str) -> None:
        """Print the body as JSON, or this one line of text."""
        self.show(body, lambda _: print(text))


def prepare_streams() -> None:
    """Let standard output and error write what their encoding lacks: a substitute or an escape, never an exception."""
    codecs.register_error("frazil.substitute", _substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not _takes_unicode(stream):
            stream.reconfigure(errors="frazil.substitute")


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    written = [_SUBSTITUTES.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in lacking]
    return "".join(written), error.end


def _takes_unicode(stream: Any) -> bool:
    encoding = getattr(stream, "encoding", None)
    return not encoding or codecs.lookup(encoding).name.startswith("utf")


def exit_code(error: FrazilError) -> int:
    if isinstance(error, Misconfigured):
        return 2
    return 3 if isinstance(error, Unavailable) else 1


def print_error(error: FrazilError, *, as_json: bool) -> None:
    """Two lines on standard error, `Error:` and `Try:`, with details between; as JSON also on standard output."""
    if as_json:
        print_json(error.body())
    details = error.details
    if isinstance(details, dict) and isinstance(details.get("log"), list):
        for line in details["log"]:
            print(f"  | {line}", file=sys.stderr)
    print(f"Error: {error.message}", file=sys.stderr)
    if isinstance(details, dict) and isinstance(details.get("examples"), list):
        for item in details["examples"][:5]:
            field = f" field {item['column']}" if item.get("column") else ""
            print(f"  line {item.get('line', '?')}{field}: {item.get('reason', '')}", file=sys.stderr)
    if isinstance(details, list):
        for item in details[:10]:
            if isinstance(item, dict) and "reason" in item:
                where = f" field {item['field']}" if item.get("field") else ""
                print(f"  event {item.get('index', '?')}{where}: {item['reason']}", file=sys.stderr)
        if len(details) > 10:
            print(f"  … and {len(details) - 10} more", file=sys.stderr)
    if error.hint:
        print(f"Try:   {error.hint}", file=sys.stderr)


def console(*, stderr: bool = False) -> Console:
    """A terminal that folds long lines; a file or a pipe has no edge to fold at."""
    from rich.console import Console

    out = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not out.is_terminal:
        out.width = 100_000
    return out


def print_json(body: Any) -> None:
    # Escapes of JSON's own where the stream has no Unicode: those of `prepare_streams` are not JSON.
    print(json.dumps(body, ensure_ascii=not _takes_unicode(sys.stdout), default=str), flush=True)


def print_facts(facts: dict[str, Any], *, width: int) -> None:
    """One indented line for each fact that has a value, its name in a column of this width."""
    for name, value in facts.items():
        if value not in ("", None):
            print(f"  {name:<{width}} {value}")


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def age(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for limit, unit, divisor in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            number = seconds / divisor
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"
