"""`frazil doctor`: checks of everything that frazil needs, each with a hint."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, console, print_json
from frazil.cli.verb import local_verb
from frazil.errors import FrazilError, Misconfigured, Unavailable

if TYPE_CHECKING:
    from frazil.runtime import DataDir
    from frazil.settings import Settings


@dataclass(frozen=True)
class Finding:
    check: str
    ok: bool
    message: str
    hint: str = ""


@local_verb
def doctor(
    options: SharedOptions,
    output: Output,
    settings: Annotated[bool, typer.Option("--settings", help="List all settings instead.")] = False,
) -> None:
    """Check everything that frazil needs. Exit code 1 if a check fails."""
    if settings:
        _show_settings(output)
        return
    findings: list[Finding] = []
    out = console()
    for finding in examine(options):
        findings.append(finding)
        if not output.as_json:
            mark = "[green]✔[/]" if finding.ok else "[red]✘[/]"
            out.print(f"{mark} {finding.check:<10}", end=" ")
            out.print(finding.message, markup=False, soft_wrap=True)
            if not finding.ok and finding.hint:
                out.print(f"             Try: {finding.hint}", markup=False, soft_wrap=True)
    well = all(finding.ok for finding in findings)
    if output.as_json:
        print_json({"ok": well, "checks": [asdict(finding) for finding in findings]})
    raise typer.Exit(0 if well else 1)


def examine(options: SharedOptions) -> Iterator[Finding]:
    """All findings, in an order in which an earlier one explains a later."""
    yield _found("programs", _programs)
    yield _found("java", lambda: f"Java {_java()}")
    try:
        settings = options.settings()
    except FrazilError as error:
        yield Finding("settings", False, error.message, error.hint)
        return
    yield Finding("settings", True, "read")
    yield _found("jars", lambda: _jars(settings))
    yield _found("walls", _walls)

    from frazil.runtime import DataDir

    directory = DataDir(settings.data_dir)
    running = directory.is_locked()
    yield _found("data", lambda: _rights(directory))
    yield _found("disk", lambda: _disk(settings, directory))
    yield _found("clock", lambda: _clock(directory))
    yield _found("token", lambda: _token(directory))
    yield _found("catalog", lambda: _catalog(settings))
    yield _found("port", lambda: _port(settings, directory, running=running))
    yield _found("leftovers", lambda: _leftovers(directory, running=running))
    yield _found("bus", lambda: _bus(settings, directory, running=running))
    yield _found("health", lambda: _health(directory, running=running))


def _found(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, look())
    except FrazilError as error:
        return Finding(check, False, error.message, error.hint)
    except OSError as error:
        return Finding(check, False, str(error), "check the permissions of the data directory")


def _programs() -> str:
    from frazil.bus import nats_server

    return f"Python {platform.python_version()}, {nats_server.binary()}"


def _java() -> str:
    from frazil.runtime import check_java

    return check_java(os.environ)


def _jars(settings: Settings) -> str:
    from frazil.pipeline import packages

    postgres = not settings.catalog_url.startswith("sqlite")
    wanted = packages(s3=settings.warehouse_url.startswith("s3:"), postgres=postgres).split(",")
    cache = Path(settings.pipeline.spark_conf.get("spark.jars.ivy", Path.home() / ".ivy2.5.2")) / "jars"
    missing = [name for name in wanted if not (cache / "{}_{}-{}.jar".format(*name.split(":"))).is_file()]
    if missing:
        raise Misconfigured(
            f"Spark has not fetched {', '.join(missing)} yet",
            hint="run `make setup`, or let the first start fetch them from the network",
        )
    return f"{len(wanted)} jars in {cache}"


def _walls() -> str:
    from frazil.serving.sql.worker import kernel_support

    standing = kernel_support()
    missing = [f"{name} ({state})" for name, state in standing.items() if not state.startswith("up")]
    if missing:
        raise Misconfigured(
            f"the sandbox of query workers is incomplete on this kernel: {', '.join(missing)}",
            hint="use Linux 5.13 or later with Landlock and seccomp; until then give tokens only to people you trust",
        )
    return "around query workers: " + ", ".join(standing)


def _rights(directory: DataDir) -> str:
    if not directory.root.exists():
        return f"{directory.root} does not exist yet; `frazil up` creates it"
    directory.prepare()
    mode = directory.root.stat().st_mode & 0o777
    if mode & 0o007:
        raise Misconfigured(
            f"everybody can read {directory.root} (mode {mode:04o})", hint=f"chmod 700 {directory.root}"
        )
    return f"{directory.root} is writable"


def _disk(settings: Settings, directory: DataDir) -> str:
    from frazil.runtime import check_disk

    place = directory.root
    while not place.exists():
        place = place.parent
    free = check_disk(place, settings.min_free_bytes)
    return f"{free / 1e9:,.1f} GB free of {shutil.disk_usage(place).total / 1e9:,.1f} GB"


def _clock(directory: DataDir) -> str:
    """A clock that ran backwards confuses the window in which an event id is remembered."""
    now = time.time()
    newest = max((p.stat().st_mtime for p in directory.run.glob("*.json")), default=0.0)
    if now < 1_735_689_600 or newest > now + 60:
        raise Misconfigured(
            f"the clock is wrong: {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now))} UTC",
            hint="synchronise the clock: timedatectl set-ntp true",
        )
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))


def _token(directory: DataDir) -> str:
    if not directory.token_file.exists():
        return "none yet, `frazil up` makes it"
    directory.read_token()
    return f"{directory.token_file}, mode 0600"


def _catalog(settings: Settings) -> str:
    from frazil.runtime import check_catalog

    path = settings.catalog_file
    if path is None:
        return "in a database server; see the health of the gateway"
    if not path.exists():
        return "none yet, `frazil up` makes it"
    check_catalog(path)
    return f"{path} is intact"


def _port(settings: Settings, directory: DataDir, *, running: bool) -> str:
    from frazil.runtime import check_port

    if running:
        return f"frazil listens at {directory.supervisor().get('url')}"
    check_port(settings.server.host, settings.server.port)
    return f"{settings.server.port} on {settings.server.host} is free"


def _leftovers(directory: DataDir, *, running: bool) -> str:
    from frazil.runtime import of_run

    run_id = directory.supervisor().get("run_id")
    left = of_run(run_id) if run_id and not running else []
    if left:
        raise Misconfigured(
            f"an earlier run left processes behind: {', '.join(str(one.pid) for one in left)}",
            hint="`frazil up` stops them before it starts",
        )
    return "no processes of an earlier run"


def _bus(settings: Settings, directory: DataDir, *, running: bool) -> str:
    from frazil.runtime import answers

    url = settings.bus.url or (directory.supervisor().get("bus_url") if running else None)
    if not url:
        return "not running; `frazil up` starts it"
    if not answers(str(url)):
        raise Unavailable(
            f"the bus at {_without_password(str(url))} does not answer", hint=f"see {directory.logs}/bus.log"
        )
    return f"{_without_password(str(url))} answers"


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _health(directory: DataDir, *, running: bool) -> str:
    """What the gateway says, which also has asked the bus whether its settings make an ack true."""
    from frazil.runtime import ask_health

    if not running:
        return "not running"
    health: dict[str, Any] | None = ask_health(str(directory.supervisor().get("url")), directory, timeout_seconds=5.0)
    if health is None:
        raise Unavailable("the gateway does not answer", hint=f"see {directory.logs}/gateway.log")
    bad = {
        name: part.get("reason") or part.get("status")
        for name, part in health.get("parts", {}).items()
        if part.get("status") not in ("ok", "starting")
    }
    if bad or health.get("status") == "degraded":
        reasons = "; ".join(f"{name}: {reason}" for name, reason in bad.items())
        raise Unavailable(f"degraded: {reasons}", hint=f"see the logs in {directory.logs} and `frazil journal`")
    return str(health.get("status"))


def _show_settings(output: Output) -> None:
    from frazil.settings import reference

    rows = [dict(zip(("name", "variable", "default", "help"), row, strict=True)) for row in reference()]
    output.show(rows, _print_settings)


def _print_settings(rows: list[dict[str, Any]]) -> None:
    out = console()
    for row in rows:
        heading = f"[bold]{row['name']}[/] [dim]{row['variable']}, default {row['default']}[/]"
        out.print(f"{heading}\n  {row['help']}", soft_wrap=True)
