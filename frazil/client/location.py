"""Location of a frazil: its address and access token, from arguments, the environment or the data directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from frazil.errors import Misconfigured, Unavailable
from frazil.storage import read_private


def locate(url: str | None = None, token: str | None = None, *, data_dir: Path | None = None) -> tuple[str, str]:
    """Address and token: as given, else from the environment, else from the data directory."""
    url = url or os.environ.get("FRAZIL_URL")
    token = token or os.environ.get("FRAZIL_TOKEN")
    data = data_dir or Path(os.environ.get("FRAZIL_DATA_DIR") or "frazil-data")
    if not url:
        try:
            url = str(json.loads((data / "run" / "supervisor.json").read_bytes())["url"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                f"no frazil has been started on {data.absolute()}",
                code="not_running",
                hint="start it with `frazil up`, or set FRAZIL_URL and FRAZIL_TOKEN to use one elsewhere",
            ) from error
    if not token:
        try:
            token = read_private(data.absolute() / "admin.token", "the admin token").strip()
        except Misconfigured as error:
            run_as_owner = "set FRAZIL_TOKEN, or run as the user who started frazil, next to its data directory"
            raise Misconfigured(
                f"there is no token: FRAZIL_TOKEN is not set and {error.message}",
                code="no_token",
                hint=error.hint if error.code == "secret_file_mode" else run_as_owner,
            ) from error
    return url, token
