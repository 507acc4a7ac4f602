"""`frazil demo`: a stream of orders from receipts to an Iceberg table, and back by SQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.options import AsJson, Config, Data, SharedOptions
from frazil.cli.output import Output
from frazil.cli.run.demo_orders import COLUMNS, TABLE, Sent, produce
from frazil.cli.run.up import addresses
from frazil.errors import FrazilError, Unavailable

if TYPE_CHECKING:
    from frazil.client import Client
    from frazil.lake.catalog import LakeTable
    from frazil.settings import Settings

BY_CITY = f"""
    SELECT city, count(*) AS orders, sum(amount) AS amount FROM {TABLE} WHERE _source = $1 GROUP BY city ORDER BY city
"""  # noqa: S608 (the name is our own)
PATIENCE_SECONDS = 300.0


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Exit after the checks; exit code 1 if a number is wrong.")
    ] = False,
    producers: Annotated[int, typer.Option(min=1, max=64, help="How many producers publish at once.")] = 4,
    batches: Annotated[int, typer.Option(min=1, max=10_000, help="How many batches each of them sends.")] = 10,
    data: Data = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.", show_default="7373")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Start frazil, publish orders from several producers, query them, commit them, read them back."""
    story = Story(quiet=as_json)
    settings = SharedOptions(data, config).settings(server__port=port)
    with running(settings, config, story) as client:
        report = play(client, settings, story, producers=producers, batches=batches)
        Output(as_json=as_json).show(report, lambda _: print_report(report, settings))
        if not once and report["adds_up"]:
            story.line("", "running until Ctrl-C")
            wait_for_ctrl_c()
    if not report["adds_up"]:
        raise typer.Exit(1)


class Story:
    """One line for each stage, with the seconds since the start."""

    def __init__(self, *, quiet: bool) -> None:
        self._began = time.monotonic()
        self._stream = sys.stderr if quiet else sys.stdout

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def line(self, stage: str, text: str) -> None:
        print(f"{self.seconds:6.1f} s  {stage:<9} {text}", file=self._stream, flush=True)


@contextmanager
def running(settings: Settings, config: Path | None, story: Story) -> Iterator[Client]:
    """The product itself, started as `frazil up` would start it, and ended with the block."""
    from frazil.client import Client
    from frazil.runtime import DataDir

    command = [sys.executable, "-m", "frazil", "up", "--json", "--data", str(settings.data_dir)]
    command += ["--port", str(settings.server.port)] + (["--config", str(config)] if config else [])
    # A group of its own: Ctrl-C reaches the demo first, which then stops it in good order.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stderr is not None
    log: list[bytes] = []
    listener = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
    listener.start()
    try:
        line = process.stdout.readline()
        if not line:
            process.wait()
            listener.join(5)
            sys.stderr.buffer.write(b"".join(log))
            raise typer.Exit(process.returncode or 1)
        ready = json.loads(line)
        if "error" in ready:
            error = ready["error"]
            raise FrazilError(error["message"], hint=error["hint"], code=error["code"])
        story.line("start", f"bus and gateway accept events at {ready['url']}; Spark is warming up meanwhile")
        token = DataDir(settings.data_dir).read_token()
        with Client(ready["url"], token) as client:
            yield client
    finally:
        if process.poll() is None:
            story.line("stop", "everything that was received is committed, then all parts end")
            process.send_signal(signal.SIGTERM)
        process.wait()


@dataclass(frozen=True)
class ReadBack:
    """What another reader finds in the table."""

    rows: int
    ids: int
    amount: Decimal
    by_city: list[tuple[str, int, Decimal]]
    snapshots: int
    files: int


def play(client: Client, settings: Settings, story: Story, *, producers: int, batches: int) -> dict[str, Any]:
    """The story, stage by stage; returns the load report."""
    run = f"demo-{time.time_ns():x}"
    client.create_table(TABLE, COLUMNS, partition=["day(ordered_at)"], description="Orders of an imaginary shop.")
    story.line("declare", f"table {TABLE}: {', '.join(COLUMNS)}; partitioned by day")

    before = time.monotonic()
    sent = publish(client, run, producers=producers, batches=batches)
    seconds = time.monotonic() - before
    rate = sent.events / seconds
    story.line(
        "publish",
        f"{producers} producers, {sent.batches} batches, {sent.events:,} receipts in {seconds:.1f} s ({rate:,.0f}/s)",
    )
    again = client.publish(TABLE, sent.first_batch)
    story.line("again", f"one batch sent twice: {again.duplicates} duplicates recognised, {again.accepted} accepted")

    live = client.sql(BY_CITY, [run])
    readable = sum(row["orders"] for row in live)
    story.line("sql", f"{readable:,} rows are readable by live SQL, before any commit ({live.elapsed_ms:.0f} ms)")
    commits = follow_commits(client, story, sent.token)
    table = load(settings)
    found = read_back(table, run)
    story.line("query", f"read from the Iceberg table by PyIceberg: {found.rows:,} rows of this run")
    for city, count, amount in found.by_city:
        story.line("", f"  {city:<12} {count:>7,} orders  {amount:>14,.2f} EUR")
    checks = {
        "every receipt was readable at once": readable == sent.events,
        "every receipt is a row": found.rows == sent.events,
        "no id is there twice": found.ids == found.rows,
        "the amounts add up to the cent": found.amount == sent.amount,
        "live SQL and the table agree": [tuple(row.values()) for row in live] == found.by_city,
        "the duplicates were counted": again.duplicates == len(sent.first_batch) and again.accepted == 0,
    }
    for check, right in checks.items():
        story.line("check", f"{'✔' if right else '✘'} {check}")
    return {
        "adds_up": all(checks.values()),
        "checks": checks,
        "events": sent.events,
        "batches": sent.batches,
        "duplicates": again.duplicates,
        "rows": found.rows,
        "commits": commits,
        "snapshots": found.snapshots,
        "files": found.files,
        "events_per_second": round(rate),
        "seconds": round(story.seconds, 1),
        "token": sent.token,
        "metadata_location": table.metadata_location,
    }


def publish(client: Client, run: str, *, producers: int, batches: int) -> Sent:
    """Several producers at once, each in a thread of its own."""
    parts: list[Sent] = []
    failures: list[FrazilError] = []

    def one(number: int) -> None:
        try:
            parts.append(produce(client, run, producer=number, batches=batches))
        except FrazilError as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Sent.together(parts)


def follow_commits(client: Client, story: Story, token: str) -> int:
    """Say each commit of the table as the journal has it, until the last receipt is visible."""
    seen: set[str] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    story.line("commit", "waiting for Spark to stage, audit and publish")
    while True:
        visible = client.visibility(token, wait_s=1.0)["visible"]
        for entry in reversed(client.journal(table=f"main.{TABLE}", limit=50)):
            if entry["kind"] == "commit" and entry["batch"] not in seen and started_after(story, entry["at"]):
                seen.add(entry["batch"])
                story.line(
                    "commit", f"snapshot {entry['snapshot']}: {entry['rows']:,} rows in {entry['seconds']:.2f} s"
                )
        if visible and seen:  # the journal is written a moment after the commit that it records
            return len(seen)
        if time.monotonic() > deadline:
            raise Unavailable(
                "the events were not committed in time", hint="`frazil status` shows the state of the pipeline"
            )
        time.sleep(0.1 if visible else 0.0)


def started_after(story: Story, at: str) -> bool:
    from datetime import UTC, datetime

    age = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    return age < story.seconds


def load(settings: Settings) -> LakeTable:
    from frazil.runtime import open_the_lake

    return open_the_lake(settings).table(f"main.{TABLE}")


def read_back(table: LakeTable, run: str) -> ReadBack:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.Table.from_batches(list(table.scan(["_id", "_source", "city", "amount"])))
    rows = rows.filter(pc.equal(rows["_source"], run))
    by_city = rows.group_by("city").aggregate([("amount", "count"), ("amount", "sum")]).sort_by("city")
    return ReadBack(
        rows=rows.num_rows,
        ids=pc.count_distinct(rows["_id"]).as_py(),
        amount=pc.sum(rows["amount"]).as_py() or Decimal(0),
        by_city=[(row["city"], row["amount_count"], row["amount_sum"]) for row in by_city.to_pylist()],
        snapshots=len(table.snapshots()),
        files=table.files,
    )


def print_report(report: dict[str, Any], settings: Settings) -> None:
    print("\nLoad report")
    for name in ("events", "duplicates", "batches", "commits", "snapshots", "files", "rows", "seconds"):
        print(f"  {name:<11} {report[name]:>10,}")
    print_addresses(settings)


def print_addresses(settings: Settings) -> None:
    from frazil.runtime import DataDir

    print("\nAddresses and next commands")
    for name, text in addresses(settings, DataDir(settings.data_dir)):
        print(f"  {name:<8} {text.replace('clicks events', f'{TABLE} events').replace('FROM clicks', f'FROM {TABLE}')}")
    print(flush=True)


def wait_for_ctrl_c() -> None:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    while not stopped.wait(1.0):
        if os.getppid() == 1 and not sys.stdout.isatty():
            return  # the process that started the demo is gone
