"""What all verbs share: their common options, how they print and how they find the server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.errors import FrazilError, Misconfigured, Unavailable

if TYPE_CHECKING:
    from rich.console import Console

    from frazil.client import Client
    from frazil.settings import Settings

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object, for programs.")]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The data directory.", show_default="./frazil-data")
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The settings file.", show_default="./frazil.toml")
]
Url = Annotated[str | None, typer.Option("--url", help="A frazil elsewhere; its token comes from FRAZIL_TOKEN.")]


def exit_code(error: FrazilError) -> int:
    if isinstance(error, Misconfigured):
        return 2
    return 3 if isinstance(error, Unavailable) else 1


def tell_error(error: FrazilError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(error.body(), ensure_ascii=False, default=str))
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
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def print_json(body: Any) -> None:
    print(json.dumps(body, ensure_ascii=False, default=str), flush=True)


def settings_of(data: Path | None, config: Path | None, **flags: Any) -> Settings:
    """The settings as the common options and further flags (`server__port=…`) say."""
    from frazil.settings import load

    overrides = {name.replace("__", "."): value for name, value in flags.items()}
    return load(config, overrides={"data_dir": data, **overrides})


def connected(data: Path | None, config: Path | None, url: str | None, **options: Any) -> Client:
    """A client of the frazil that the options, the environment or the data directory name."""
    from frazil.client import Client, locate

    named = (url or os.environ.get("FRAZIL_URL")) and os.environ.get("FRAZIL_TOKEN")
    data_dir = None if named else settings_of(data, config).data_dir
    return Client(*locate(url, data_dir=data_dir), **options)


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
