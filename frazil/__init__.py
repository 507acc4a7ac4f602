"""frazil writes event streams into Apache Iceberg tables, each event exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.client import Client

__version__ = "0.1.0"
__all__ = ["__version__", "connect"]


def connect(url: str | None = None, token: str | None = None, *, read_your_writes: bool = False) -> Client:
    """A client of the frazil at `url`.

    Missing arguments are taken from FRAZIL_URL and FRAZIL_TOKEN, else from the local data directory (FRAZIL_DATA_DIR,
    `./frazil-data`), where a frazil on this machine writes its address and its token.

    With `read_your_writes`, every query includes everything that this client has written and read, on any gateway.
    """
    from frazil.client import Client, locate

    return Client(*locate(url, token), read_your_writes=read_your_writes)
