"""Location of a frazil: its address and access token, from arguments, the environment or the data directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from frazil.errors import Misconfigured, Unavailable


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
            token = (data / "admin.token").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(
                f"there is no token: FRAZIL_TOKEN is not set and {data.absolute() / 'admin.token'} cannot be read",
                code="no_token",
                hint="set FRAZIL_TOKEN, or run as the user who started frazil, next to its data directory",
            ) from error
    return url, token
