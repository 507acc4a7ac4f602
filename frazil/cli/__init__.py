"""The command `frazil`: one file per verb, listed here; `verb.py` adds the options that verbs share.

Every verb has `--json`. Errors are two lines on standard error, `Error:` and `Try:`, and an exit code: 1 for a refused
or failed command, 2 for wrong settings, machine or usage, 3 for an error that may pass.
"""

from __future__ import annotations

import importlib
import os
import sys

import typer

from frazil import __version__
from frazil.cli.admin import catalog, repair, token
from frazil.cli.admin.journal import journal as journal_verb
from frazil.cli.ask.search import search as search_verb
from frazil.cli.ask.sql import sql as sql_verb
from frazil.cli.load.jobs import jobs as jobs_verb
from frazil.cli.load.publish import publish as publish_verb
from frazil.cli.output import exit_code, prepare_streams, print_error
from frazil.cli.run import serve
from frazil.cli.run.doctor import doctor as doctor_verb
from frazil.cli.run.status import status as status_verb
from frazil.cli.run.up import up as up_verb
from frazil.cli.searching import artifacts, profiles
from frazil.cli.searching.build import build as build_verb
from frazil.cli.searching.embed import embed as embed_verb
from frazil.cli.tables import maintain, tables
from frazil.errors import FrazilError

_LOADED_WHEN_CALLED = {
    "trial": "searching",
    "ingest": "load",
    "export": "load",
    "quack": "searching",
    "demo": "run",
    "bench": "admin",
}


def main() -> None:
    """Run the command line of this process and exit."""
    prepare_streams()
    try:
        build(sys.argv[1:])()
    except FrazilError as error:
        print_error(error, as_json="--json" in sys.argv[1:])
        sys.stdout.flush()
        raise SystemExit(exit_code(error)) from None
    except BrokenPipeError:
        # The reader of a pipe closed it. Python would report that once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def build(arguments: list[str]) -> typer.Typer:
    """All verbs. Verbs with heavy imports are imported only when they are called or listed."""
    app = typer.Typer(
        name="frazil",
        help="Write event streams into Apache Iceberg tables, each event exactly once, and query them.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_top)
    app.command("up")(up_verb)
    app.command("status")(status_verb)
    app.command("doctor")(doctor_verb)
    app.add_typer(tables.app, name="tables")
    app.command("publish")(publish_verb)
    app.command("sql")(sql_verb)
    app.command("search")(search_verb)
    app.command("embed")(embed_verb)
    app.add_typer(artifacts.app, name="artifacts")
    app.add_typer(profiles.app, name="profiles")
    app.command("build")(build_verb)
    app.add_typer(token.app, name="token")
    app.command("compact")(maintain.compact)
    app.command("expire")(maintain.expire)
    app.command("orphans")(maintain.orphans)
    app.command("retention")(maintain.retention)
    app.command("purge")(maintain.purge)
    app.command("jobs")(jobs_verb)
    app.command("journal")(journal_verb)
    app.add_typer(repair.app, name="repair")
    app.add_typer(catalog.app, name="catalog")
    app.add_typer(serve.app, name="serve")
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for verb, room in _LOADED_WHEN_CALLED.items():
        if called in (verb, None):
            module = importlib.import_module(f"{__name__}.{room}.{verb}")
            if hasattr(module, "app"):
                app.add_typer(module.app, name=verb)
            else:
                app.command(verb)(getattr(module, verb))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"frazil {__version__}")
        raise typer.Exit


def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Write event streams into Apache Iceberg tables, each event exactly once, and query them."""
