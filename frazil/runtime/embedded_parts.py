"""The parts of the embedded profile: what each is started with, and how one sees that it works."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frazil.bus import nats_server
from frazil.errors import FrazilError
from frazil.runtime.data_dir import DataDir, read_json
from frazil.runtime.machine_checks import free_port
from frazil.runtime.supervisor import SupervisedPart
from frazil.settings import Settings

_ROOM_BYTES = 32 << 20
STOP_ORDER = ("gateway", "pipeline", "bus")
"""A request that waits for its commit needs the pipeline, and the pipeline needs the bus."""


def supervised_parts(
    settings: Settings, data: DataDir, *, config: Path | None = None
) -> tuple[list[SupervisedPart], dict[str, Any]]:
    """The bus (unless it is somebody else's), the gateway and the pipeline, in the order of their start.

    With them come the facts that others on this machine need to find them.

    The gateway is started at the same time as the bus and waits for it by itself: imports take longer than NATS does.
    The pipeline comes after the gateway: a JVM that starts beside it would take the cores that the first event needs.
    """
    environment = {
        "FRAZIL_DATA_DIR": str(settings.data_dir),
        "FRAZIL_SERVER__HOST": settings.server.host,
        "FRAZIL_SERVER__PORT": str(settings.server.port),
        "PYSPARK_PYTHON": sys.executable,
    }
    if config is not None:
        environment["FRAZIL_CONFIG"] = str(config)
    parts: list[SupervisedPart] = []
    facts = {"url": settings.address, "bus_url": settings.bus.url}
    if settings.bus.url is None:
        bus, access = _embedded_bus(settings, data)
        parts.append(bus)
        environment |= access
        facts["bus_url"] = access["FRAZIL_BUS__URL"]
    run = [sys.executable, "-m", "frazil", "serve"]
    parts.append(
        SupervisedPart(
            "gateway",
            [*run, "gateway"],
            lambda pid: _gateway_is_busy_with(settings.address, data),
            environment,
            stop_seconds=settings.drain_seconds,
        )
    )
    parts.append(
        SupervisedPart(
            "pipeline",
            [*run, "pipeline"],
            lambda pid: _pipeline_is_busy_with(data, pid),
            environment,
            vital=False,
            after="gateway",
            stop_seconds=settings.drain_seconds,
        )
    )
    return parts, facts


def _embedded_bus(settings: Settings, data: DataDir) -> tuple[SupervisedPart, dict[str, str]]:
    """The NATS server, and the variables with which the other parts enter it."""
    before = urlsplit(str(data.supervisor().get("bus_url") or "")).port
    port = settings.bus.port or free_port(before or 0)
    config = nats_server.write_config(data.bus, port, max_file_store_bytes=settings.bus.max_store_bytes)
    credentials = nats_server.credentials(data.bus)
    access = {"FRAZIL_BUS__URL": f"nats://127.0.0.1:{port}"}
    access |= {f"FRAZIL_BUS__{key.upper()}": value for key, value in credentials.items()}
    url = access["FRAZIL_BUS__URL"]
    bus = SupervisedPart(
        "bus",
        nats_server.command(config),
        lambda pid: None if answers(url) else "recovering",
        stuck=lambda: nats_server.write_error(port, credentials) if _has_room(data.bus) else None,
    )
    return bus, access


def _has_room(folder: Path) -> bool:
    """A bus that could not write is worth a new start only when that could help."""
    return shutil.disk_usage(folder).free >= _ROOM_BYTES


def answers(url: str, *, timeout_seconds: float = 0.5) -> bool:
    """Whether a bus is there. NATS says who it is to everybody who connects, once it has recovered its streams."""
    address = urlsplit(url)
    port = address.port or {"nats": 4222}.get(address.scheme, 5432)
    try:
        with socket.create_connection((address.hostname or "127.0.0.1", port), timeout=timeout_seconds) as connection:
            return address.scheme != "nats" or connection.recv(5) == b"INFO "
    except OSError:
        return False


def _gateway_is_busy_with(url: str, data: DataDir) -> str | None:
    health = ask_health(url, data)
    if health is None:
        return "starting"
    bus = health.get("parts", {}).get("bus", {})
    return None if bus.get("status") == "ok" else "waiting for the bus"


def ask_health(url: str, data: DataDir, *, timeout_seconds: float = 0.5) -> dict[str, Any] | None:
    """The answer of `GET /v1/health` to the admin of this data directory; None if there is none."""
    address = urlsplit(url)
    try:
        headers = {"Authorization": f"Bearer {data.admin_token()}"}
    except FrazilError:
        headers = {}  # then the answer has the status alone
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_seconds)
    try:
        connection.request("GET", "/v1/health", headers=headers)
        body = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return body if isinstance(body, dict) else None


def _pipeline_is_busy_with(data: DataDir, pid: int) -> str | None:
    """The state in the status file; a file that another pipeline left behind does not count."""
    report = read_json(data.pipeline_file)
    if report.get("pid") != pid:
        return "warming"
    state = str(report.get("state", "warming"))
    return state if state in ("starting", "warming") else None
