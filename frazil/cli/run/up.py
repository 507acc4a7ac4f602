"""`frazil up`: all parts, started and supervised until Ctrl-C."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.options import AsJson, Config, Data, SharedOptions
from frazil.cli.output import console, print_json

if TYPE_CHECKING:
    from frazil.runtime import DataDir, PartState, Screen
    from frazil.settings import Settings

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def up(
    data: Data = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.", show_default="7373")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Start frazil here: bus, gateway and pipeline, until Ctrl-C.

    Exit codes: 0 stopped in good order; 1 refused, or a part had to be killed; 2 wrong settings or machine;
    3 a part did not come up; 130 stopped in a hurry.
    """
    from frazil.runtime import STOP_ORDER, DataDir, Supervisor, end_leftovers, supervised_parts
    from frazil.settings import find_config

    settings = SharedOptions(data, config).settings(server__host=host, server__port=port)
    directory = DataDir(settings.data_dir)
    directory.prepare()
    lock = directory.lock()
    try:
        leftovers = end_leftovers(directory)
        _check(settings, directory)
        parts, facts = supervised_parts(settings, directory, config=find_config(config, os.environ))
        screen = _screen(settings, directory, as_json=as_json)
        if leftovers:
            screen.say(f"stopped {leftovers} processes of an earlier run")
        supervisor = Supervisor(
            parts, directory, run_id=uuid.uuid4().hex, facts=facts, screen=screen, stop_order=STOP_ORDER
        )
        try:
            code = supervisor.run()
        finally:
            screen.close()
    finally:
        lock.release()
    raise typer.Exit(code)


def _check(settings: Settings, directory: DataDir) -> None:
    """Everything that can be known before a part is started, cheapest first."""
    from frazil.runtime import check_catalog, check_disk, check_java, check_port

    check_disk(directory.root, settings.min_free_bytes)
    directory.admin_token()
    if settings.catalog_file is not None:
        check_catalog(settings.catalog_file)
    check_java(os.environ)
    check_port(settings.server.host, settings.server.port)


def _screen(settings: Settings, directory: DataDir, *, as_json: bool) -> _Lines | _Live:
    if as_json:
        return _Json(settings, directory)
    return _Live(settings, directory) if sys.stdout.isatty() else _Lines(settings, directory)


def addresses(settings: Settings, directory: DataDir) -> list[tuple[str, str]]:
    """The list that ends the first screen."""
    here = "" if directory.root == Path("frazil-data").absolute() else f" --data {directory.root}"
    return [
        ("HTTP", settings.address),
        ("health", f"{settings.address}/v1/health"),
        ("metrics", f"{settings.address}/metrics"),
        ("data", str(directory.root)),
        ("token", str(directory.token_file)),
        ("logs", str(directory.logs)),
        ("next", f"frazil tables create clicks --column url:string --column at:timestamp{here}"),
        ("", f"frazil publish clicks events.ndjson{here}"),
        ("", 'frazil sql "SELECT count(*) FROM clicks"' + here),  # noqa: S608 (it is shown, not run)
        ("", f"frazil status{here}"),
    ]


class _Lines:
    """Plain text, one line for each thing that happens."""

    def __init__(self, settings: Settings, directory: DataDir) -> None:
        self._settings = settings
        self._directory = directory
        self._shown: dict[str, str] = {}

    def show(self, parts: Sequence[PartState], seconds: float) -> None:
        for part in parts:
            if self._shown.get(part.name) == part.state:
                continue
            self._shown[part.name] = part.state
            if part.state == "ready":
                self._print(f"✔ {part.name} {seconds:.1f} s")
            elif part.state == "stopped":
                self._print(f"■ {part.name} stopped")

    def ready(self, parts: Sequence[PartState], seconds: float) -> None:
        for name, text in addresses(self._settings, self._directory):
            self._print(f"  {name:<8} {text}")

    def say(self, text: str) -> None:
        self._print(f"! {text}")

    def close(self) -> None:
        sys.stdout.flush()

    def _print(self, text: str) -> None:
        print(text, flush=True)


class _Json(_Lines):
    """One JSON line when events are accepted; what happens besides goes to standard error."""

    def ready(self, parts: Sequence[PartState], seconds: float) -> None:
        print_json(
            {
                "status": "ready",
                "url": self._settings.address,
                "metrics": f"{self._settings.address}/metrics",
                "data_dir": str(self._directory.root),
                "token_file": str(self._directory.token_file),
                "pid": os.getpid(),
                "seconds": round(seconds, 3),
                "parts": {part.name: _part(part) for part in parts},
            }
        )

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _part(part: PartState) -> dict[str, Any]:
    return {"state": part.state, "pid": part.identity.pid if part.identity else None}


class _Live:
    """A check-list that redraws itself until all is ready; then lines."""

    def __init__(self, settings: Settings, directory: DataDir) -> None:
        from rich.live import Live

        self._settings = settings
        self._directory = directory
        self._console = console()
        self._addresses: list[tuple[str, str]] = []
        # The supervisor calls often enough; a refreshing thread of rich's own would be there at every fork.
        self._live: Live | None = Live(console=self._console, auto_refresh=False, transient=False)
        self._live.start()
        self._restarting: set[str] = set()

    def show(self, parts: Sequence[PartState], seconds: float) -> None:
        if self._live is None:
            for part in parts:
                if part.state == "ready" and part.name in self._restarting:
                    self._console.print(f"[green]✔[/] {part.name} is back")
                    self._restarting.discard(part.name)
                elif part.state == "restarting":
                    self._restarting.add(part.name)
                elif part.state == "stopped":
                    self._restarting.discard(part.name)
            return
        self._live.update(self._drawing(parts, seconds), refresh=True)
        if all(part.state == "ready" for part in parts):
            self._end_live()

    def _drawing(self, parts: Sequence[PartState], seconds: float) -> Any:
        from rich.table import Table

        table = Table.grid(padding=(0, 1))
        for part in parts:
            if part.state == "ready":
                table.add_row("[green]✔[/]", part.name, f"[dim]{part.ready_after_seconds or 0:.1f} s[/]")
            elif part.state == "restarting":
                table.add_row("[red]✘[/]", part.name, f"[red]{part.doing}, starts again[/]")
            else:
                spin = SPINNER[int(seconds * 10) % len(SPINNER)]
                table.add_row(f"[cyan]{spin}[/]", part.name, f"[dim]{part.doing} … {seconds:.0f} s[/]")
        if self._addresses:
            table.add_row("", "", "")
            for name, text in self._addresses:
                table.add_row("", f"[bold]{name}[/]", text)
        return table

    def ready(self, parts: Sequence[PartState], seconds: float) -> None:
        self._addresses = addresses(self._settings, self._directory)
        self.show(parts, seconds)

    def say(self, text: str) -> None:
        if text.startswith("stopping"):
            self._end_live()
        self._console.print("! ", style="yellow", end="")
        self._console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._end_live()

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


if TYPE_CHECKING:
    _as_screen: tuple[type[Screen], ...] = (_Lines, _Json, _Live)
