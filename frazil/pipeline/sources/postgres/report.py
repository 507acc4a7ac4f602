"""Report of a night: a line for each table, as text, as HTML, and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date
from html import escape
from typing import Any

_HEADINGS = ("table", "rows", "difference", "bytes", "snapshot", "metadata", "seconds")


@dataclass(frozen=True)
class TableLine:
    table: str
    archive: str = ""
    rows: int = 0
    bytes: int = 0
    snapshot_id: int | None = None
    metadata_version: int | None = None
    seconds: float = 0.0
    """Of work on it, summed over ranges that were read side by side."""
    difference: int | None = None
    """To the rows of the night before; None for the first."""
    error: str = ""
    hint: str = ""

    def cells(self) -> tuple[str, ...]:
        changed = "first night" if self.difference is None else f"{self.difference:+,}"
        return (
            self.table,
            f"{self.rows:,}",
            changed,
            f"{self.bytes:,}",
            str(self.snapshot_id),
            f"v{self.metadata_version}",
            f"{self.seconds:.1f}",
        )


@dataclass(frozen=True)
class Night:
    source: str
    night: date
    taken_at: str
    """The moment that all tables are as of, by the clock of the database."""
    lines: tuple[TableLine, ...]
    seconds: float

    @property
    def failed(self) -> tuple[TableLine, ...]:
        return tuple(line for line in self.lines if line.error)

    @property
    def title(self) -> str:
        good = len(self.lines) - len(self.failed)
        failed = f", {len(self.failed)} FAILED" if self.failed else ""
        return f"Archive of {self.source}, {self.night}: {good} table{'s' * (good != 1)}{failed}"

    @property
    def total(self) -> str:
        rows, size = sum(line.rows for line in self.lines), sum(line.bytes for line in self.lines)
        return f"{rows:,} rows, {size:,} bytes, {self.seconds:.1f} s; all tables as of {self.taken_at}"

    def body(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "night": self.night.isoformat(),
            "taken_at": self.taken_at,
            "rows": sum(line.rows for line in self.lines),
            "bytes": sum(line.bytes for line in self.lines),
            "failed": len(self.failed),
            "seconds": round(self.seconds, 3),
            "tables": [{**asdict(line), "seconds": round(line.seconds, 3)} for line in self.lines],
        }

    def text(self) -> str:
        """For a mail and a terminal."""
        rows = [_HEADINGS, *(line.cells() for line in self.lines if not line.error)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
        lines = [self.title, self.total, ""]
        for row in rows:
            first, *others = row
            numbers = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
            lines.append("  ".join([first.ljust(widths[0]), *numbers]))
        for line in self.failed:
            lines += ["", f"FAILED {line.table}: {line.error}", *([f"  Try: {line.hint}"] if line.hint else [])]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """A page of its own, without anything from elsewhere."""
        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line.cells()) + "</tr>"
            for line in self.lines
            if not line.error
        )
        failed = "".join(
            f'<p class="failed"><strong>{escape(line.table)}</strong> failed: {escape(line.error)}'
            f"{'<br>Try: ' + escape(line.hint) if line.hint else ''}</p>"
            for line in self.failed
        )
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>'
            f"<style>{_STYLE}</style></head><body><h1>{escape(self.title)}</h1>{failed}"
            f"<p>{escape(self.total)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
            "</body></html>\n"
        )


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b2733}"
    "h1{font-size:1.3rem}table{border-collapse:collapse;width:100%}th,td{padding:.35rem .6rem;text-align:right;"
    "border-bottom:1px solid #dde3e9;font-variant-numeric:tabular-nums}th:first-child,td:first-child{text-align:left}"
    "th{color:#5b6b7a;font-weight:600}.failed{background:#fdecea;border-left:4px solid #c0392b;padding:.6rem .9rem}"
)
