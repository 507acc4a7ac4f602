"""`frazil publish`: a file of events into a table, safely however often it is run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, console
from frazil.cli.verb import verb
from frazil.errors import FrazilError, Unavailable

if TYPE_CHECKING:
    from frazil.cli.load.publish_source import EventSource, SourceChunk, SourcePlace
    from frazil.client import Client


@dataclass
class PublishReport:
    """What the load came to."""

    table: str
    events: int = 0
    duplicates: int = 0
    batches: int = 0
    bytes: int = 0
    skipped: int = 0
    seconds: float = 0.0
    token: str = ""
    visible: bool | None = None

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0


@verb
def publish(
    options: SharedOptions,
    output: Output,
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="NDJSON, JSON or Arrow; - is standard input.")],
    data_only: Annotated[
        bool, typer.Option("--data-only", help="The objects are plain rows; each becomes the `data` of an event.")
    ] = False,
    format: Annotated[str | None, typer.Option(help="ndjson, json or arrow. Default: from the file name.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The identity of the input. Default: path and first line.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all events are committed and visible.")] = False,
    timeout_s: Annotated[float, typer.Option(help="Seconds that --wait waits.")] = 60.0,
    retry_s: Annotated[float, typer.Option(help="Seconds to retry a batch that cannot be delivered.")] = 60.0,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start at the first line, not where a run stopped.")
    ] = False,
) -> None:
    """Publish a file of events.

    After a crash, a Ctrl-C or a lost network, run it again: it continues where it stopped. Events without an id get
    one from the file and the line, so nothing counts twice. If a file has grown, only its new lines are published.
    """
    from frazil.cli.load.publish_source import SourcePlace, open_source
    from frazil.cli.load.publish_state import Progress

    source = open_source(table, file, format=format, plain=data_only, name=name)
    progress = Progress(options.state_folder() / "publish", source.identity, keep=source.path is not None)
    start = SourcePlace() if restart else progress.read()
    if not source.knows(start):
        start = SourcePlace()
    report = PublishReport(table, skipped=start.events)
    with options.connect(retry_s=retry_s) as client:
        begun = time.monotonic()
        try:
            _send(client, source, start, report, progress.write, quiet=output.as_json)
        except KeyboardInterrupt:
            report.seconds = time.monotonic() - begun
            print(f"\nstopped after {report.events:,} events; the same command continues from there", file=sys.stderr)
            raise typer.Exit(130) from None
        report.seconds = time.monotonic() - begun
        if wait and report.token:
            _wait(client, report, timeout_s)
    rate = round(report.events_per_second, 1)
    body = {**asdict(report), "seconds": round(report.seconds, 3), "events_per_second": rate}
    output.show(body, lambda _: _print_report(report))


def _send(
    client: Client,
    source: EventSource,
    start: SourcePlace,
    report: PublishReport,
    remember: Callable[[SourcePlace], None],
    *,
    quiet: bool,
) -> None:
    from frazil.client import merge_tokens

    with _Bar(source, start, quiet=quiet) as advance:
        for chunk in source.chunks(start):
            try:
                receipt = client.publish_body(report.table, chunk.body, chunk.content_type)
            except FrazilError as error:
                raise _by_line(error, chunk, report) from error
            remember(chunk.after)
            report.events += chunk.events
            report.duplicates += receipt.duplicates
            report.batches += 1
            report.bytes += len(chunk.body)
            report.token = merge_tokens(report.token, receipt.token)
            advance(chunk.after, report.events)


def _by_line(error: FrazilError, chunk: SourceChunk, report: PublishReport) -> FrazilError:
    """The same error with lines of the file in the place of numbers in the batch."""
    if isinstance(error.details, list):
        for item in error.details:
            if isinstance(item, dict) and isinstance(item.get("index"), int) and item["index"] < chunk.events:
                item["line"] = chunk.line_numbers[item["index"]]
                item["index"] = f"in line {item['line']}"
    if report.events:
        error.message = f"{error.message} (the {report.events:,} events before are safe)"
    if not error.transient:
        error.hint = f"{error.hint}; then run the same command again".lstrip("; ")
    return error


def _wait(client: Client, report: PublishReport, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not report.visible:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Unavailable(
                f"{report.events:,} events are safe, but not all are visible after {timeout_s:.0f} s",
                code="visibility_timeout",
                hint="`frazil status` shows the lag of the pipeline",
                details={"report": asdict(report)},
            )
        answer = client.visibility(report.token, wait_s=min(left, 10.0))
        report.visible = bool(answer.get("visible"))


def _print_report(report: PublishReport) -> None:
    if report.skipped:
        print(f"{report.skipped:,} events were published by an earlier run")
    again = f", {report.duplicates:,} of them duplicates" if report.duplicates else ""
    visible = ", all visible" if report.visible else ""
    print(
        f"{report.events:,} events{again} in {report.batches:,} batches, {report.seconds:.2f} s, "
        f"{report.events_per_second:,.0f} events/s{visible}"
    )
    if report.token:
        print(f"token {report.token}")


class _Bar:
    """A progress bar on standard error, if somebody looks at it."""

    def __init__(self, source: EventSource, start: SourcePlace, *, quiet: bool) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar: Progress | None = None
        self._by_bytes = source.format == "ndjson" and source.size is not None
        if quiet or not sys.stderr.isatty():
            return
        columns: list[Any] = [TextColumn("publishing"), BarColumn()]
        columns += [DownloadColumn()] if self._by_bytes else []
        columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn()]
        self._bar = Progress(*columns, console=console(stderr=True), transient=True)
        total = source.size if self._by_bytes else None
        self._task = self._bar.add_task("", total=total, completed=start.offset, rate="")

    def __enter__(self) -> Callable[[SourcePlace, int], None]:
        self._begun = time.monotonic()
        if self._bar is not None:
            self._bar.start()
        return self._advance

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _advance(self, place: SourcePlace, events: int) -> None:
        if self._bar is None:
            return
        rate = events / max(1e-6, time.monotonic() - self._begun)
        shown = f"{events:,} events, {rate:,.0f}/s"
        self._bar.update(self._task, completed=place.offset if self._by_bytes else None, rate=shown)
