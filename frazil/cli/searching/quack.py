"""`frazil quack`: a table's current artifact for other DuckDBs, over their remote protocol."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.options import SharedOptions
from frazil.cli.output import Output, print_error
from frazil.cli.verb import local_verb
from frazil.errors import FrazilError, Misconfigured, Unavailable
from frazil.storage import read_private

if TYPE_CHECKING:
    from frazil.serving.quack import QuackOfTable

_LOOK_SECONDS = 5.0
_TOKEN_BYTES = 32


@local_verb
def quack(
    options: SharedOptions,
    output: Output,
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine's loopback; 0: a free one.")] = 9494,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token file; created if missing.", show_default="DIR/quack.token"),
    ] = None,
) -> None:
    """Serve the current artifact of a table, read-only, on this machine only, until Ctrl-C."""
    from frazil.events.declaration import table_name
    from frazil.runtime import DataDir, free_port, open_the_lake
    from frazil.serving.artifacts import LocalCopies, open_shelf
    from frazil.serving.quack import QuackOfTable

    settings = options.settings()
    name = table_name(table)
    lake = open_the_lake(settings)
    try:
        lake.table(name)
        shelf = open_shelf(lake.registry, lake.warehouse, name, settings.search)
        path = token_file or settings.data_dir / "quack.token"
        served = QuackOfTable(
            shelf,
            LocalCopies(DataDir(settings.data_dir).artifacts, shelf.objects, name),
            port=(port := port or free_port()),
            token=_token(path),
        )
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        try:
            served.turn()
            while True:
                address = {"table": table, "generation": served.generation, "port": port, "token_file": str(path)}
                output.show(address, _print_address)
                while not stopped.wait(_LOOK_SECONDS):
                    if _turned(served, output):
                        break
                else:
                    return
        finally:
            served.close()
    finally:
        lake.close()


def _turned(served: QuackOfTable, output: Output) -> bool:
    """Whether something else is served now. Trouble is printed and tried again, unless nothing is left to serve."""
    try:
        return served.turn()
    except FrazilError as error:
        if served.generation is None and not isinstance(error, Unavailable):
            raise
        print_error(error, as_json=output.as_json)
        return False


def _token(path: Path) -> str:
    """The token in a file that only its owner can read; a new one if there is no file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"frq_{secrets.token_urlsafe(_TOKEN_BYTES)}\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise Misconfigured(f"cannot keep the token in {path}: {error.strerror}", hint="--token-file FILE") from error
    try:
        token = read_private(path, "the token of quack").strip()
    except Misconfigured as error:
        code = "secret_exposed" if error.code == "secret_file_mode" else error.code
        raise Misconfigured(error.message, code=code, hint=error.hint) from None
    if len(token) < 16:
        raise Misconfigured(f"{path} holds no token", hint=f"remove it, and another is made: rm {path}")
    return token


def _print_address(address: dict[str, Any]) -> None:
    table, server = address["table"], f"quack:localhost:{address['port']}"
    secret = f"CREATE SECRET (TYPE quack, TOKEN '…'); -- from {address['token_file']}"
    print(f"{table}: generation {address['generation']} at {server}, tables `rows` and `chunks`; Ctrl-C ends it")
    print(f"  in DuckDB       LOAD httpfs; LOAD quack; {secret}")
    print(f"                  ATTACH '{server}' AS {table.rpartition('.')[2]};")
