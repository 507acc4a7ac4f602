"""Shared options of the verbs: their declarations, and the settings and the client that they lead to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
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


@dataclass(frozen=True)
class SharedOptions:
    """The values of `--data`, `--config`, `--url` and `--json` in one call."""

    data: Path | None = None
    config: Path | None = None
    url: str | None = None
    as_json: bool = False

    def settings(self, **flags: Any) -> Settings:
        """The settings as these options and further flags (`server__port=…`) say."""
        from frazil.settings import load

        overrides = {name.replace("__", "."): value for name, value in flags.items()}
        return load(self.config, overrides={"data_dir": self.data, **overrides})

    def connect(self, **options: Any) -> Client:
        """A client of the frazil that the options, the environment or the data directory name."""
        from frazil.client import Client, locate

        named = (self.url or os.environ.get("FRAZIL_URL")) and os.environ.get("FRAZIL_TOKEN")
        data_dir = None if named else self.settings().data_dir
        return Client(*locate(self.url, data_dir=data_dir), **options)

    def state_folder(self) -> Path:
        """The folder for what a user's commands remember: the data directory where it is here, else the user's own."""
        data_dir = self.settings().data_dir
        if os.access(data_dir, os.W_OK):
            return data_dir
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "frazil"
