"""Worker configuration, sent to the fork server when it starts: files, key of the store, limits of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import ParseResult, urlparse

from frazil.serving.sql.settings import QuerySettings
from frazil.serving.sql.worker.sandbox import SandboxRules
from frazil.storage import Warehouse

# What an S3 client reads: addresses of hosts, and whom to trust.
_HOSTS = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf")
_TRUST = ("/etc/ssl", "/etc/pki", "/usr/share/ca-certificates")


def fork_server_config(settings: QuerySettings, warehouse: Warehouse, readable: Sequence[Path]) -> dict[str, Any]:
    more = [str(path.resolve()) for path in readable]
    if warehouse.is_s3:
        endpoint = urlparse(warehouse.endpoint or f"https://s3.{warehouse.region}.amazonaws.com")
        port = endpoint.port or (443 if endpoint.scheme == "https" else 80)
        rules = SandboxRules((*more, *_HOSTS, *_TRUST), port, names=not _is_address(endpoint.hostname or ""))
        directories = [warehouse.url.rstrip("/") + "/"]
        secret: dict[str, Any] | None = _secret(warehouse, endpoint)
    else:
        folder = str(warehouse.folder())
        rules = SandboxRules((folder, *more))
        # The engine compares texts: the same folder in both of its spellings.
        directories, secret = [f"{folder}/", f"file://{folder}/"], None
    return {
        "store": {"directories": directories + [f"{folder}/" for folder in more], "secret": secret},
        "worker": {
            "rules": asdict(rules),
            "threads": settings.threads,
            "memory_bytes": int(settings.worker_memory),
        },
    }


def make_folders(warehouse: Warehouse, readable: Sequence[Path]) -> None:
    """What the sandbox leaves open is a folder, not a name: it has to be there when they go up."""
    for folder in (*readable, *(() if warehouse.is_s3 else (warehouse.folder(),))):
        folder.mkdir(parents=True, exist_ok=True)


def _secret(warehouse: Warehouse, endpoint: ParseResult) -> dict[str, Any]:
    return {
        "KEY_ID": warehouse.access_key_id,
        "SECRET": warehouse.secret_access_key,
        "REGION": warehouse.region,
        "ENDPOINT": endpoint.netloc,
        "URL_STYLE": "path" if warehouse.path_style else "vhost",
        "USE_SSL": endpoint.scheme == "https",
        "SCOPE": warehouse.url,
    }


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
