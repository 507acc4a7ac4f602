"""Verbs and options are in users' hands: `options.txt` lists all of them, in the order of `--help`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from frazil.cli import build

LISTED = Path(__file__).with_name("options.txt")


def test_every_verb_has_the_options_that_it_had() -> None:
    """A new verb or option takes its line here; one that goes away breaks somebody's script."""
    found = list(_lines(typer.main.get_command(build([])), "frazil"))
    assert found == LISTED.read_text().splitlines()


def _lines(command: Any, name: str) -> Iterator[str]:
    options = [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]
    yield " ".join([name, *options])
    for below, inner in getattr(command, "commands", {}).items():
        yield from _lines(inner, f"{name} {below}")
