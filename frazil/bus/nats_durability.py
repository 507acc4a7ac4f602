"""NATS durability: whether an ack of this server is on its disk, by the settings in its system account."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nats.aio.msg import Msg

from frazil.bus.nats_connection import NatsConnection, NoResponder
from frazil.bus.stream_rules import MAX_MESSAGE_BYTES, unknown
from frazil.errors import Denied, Misconfigured

_OLDEST = (2, 15, 1)
_DUPLICATE_WINDOW_AT_LEAST = int(120e9)


async def check_server(url: str, credentials: Mapping[str, str], connection: NatsConnection) -> dict[str, str]:
    """The settings in force on every server of the cluster; raises `Misconfigured` at the first that is wrong."""
    version = ".".join(str(part) for part in connection.server_version)
    if connection.server_version < _OLDEST:
        raise Misconfigured(
            f"the NATS server is of version {version}: it may leave half of a batch behind at a power cut",
            hint=f"use nats-server {'.'.join(str(part) for part in _OLDEST)} or newer",
        )
    if connection.max_payload < MAX_MESSAGE_BYTES:
        raise Misconfigured(
            f"the NATS server takes messages of {connection.max_payload} bytes, {MAX_MESSAGE_BYTES} are needed",
            hint="set max_payload: 8454144 in the server's configuration",
        )
    await _check_authorisation(url)
    servers = await _server_configs(url, credentials)
    for name, config in servers.items():
        _check_storage(name, config)
    return {
        "server": f"nats-server {version}",
        "servers": ", ".join(sorted(servers)),
        "sync": "always",
        "authorization": "required",
        "max_payload": str(connection.max_payload),
        "max_file_store": str(min(int(config["max_storage"]) for config in servers.values())),
    }


def check_stream(name: str, config: Mapping[str, Any]) -> None:
    """A stream that someone changed by hand may drop events or keep them in memory."""
    wanted = {
        "storage is file": config.get("storage") == "file",
        "retention is limits": config.get("retention") == "limits",
        "discard is new": config.get("discard") == "new",
        "max_bytes is set": int(config.get("max_bytes", -1)) > 0,
        "max_age is not set": not config.get("max_age"),
        "max_msgs is not set": int(config.get("max_msgs", -1)) <= 0,
        "max_msgs_per_subject is not set": int(config.get("max_msgs_per_subject", -1)) <= 0,
        "duplicate_window is 2 minutes or more": int(config.get("duplicate_window", 0)) >= _DUPLICATE_WINDOW_AT_LEAST,
        "allow_atomic is on": bool(config.get("allow_atomic")),
        "allow_direct is on": bool(config.get("allow_direct")),
        "persist_mode is not async": config.get("persist_mode", "default") != "async",
    }
    if broken := [rule for rule, holds in wanted.items() if not holds]:
        raise Misconfigured(
            f"the stream of {name} was changed; it must be so that {', '.join(broken)}",
            hint=f"edit the stream with the nats tool, or run `frazil repair bus {name}`",
        )


async def _check_authorisation(url: str) -> None:
    """Connect without credentials: the server must refuse."""
    try:
        stranger = await NatsConnection.connect(url)
    except Denied:
        return
    await stranger.close()
    raise Misconfigured(
        "the NATS server accepts connections without credentials",
        hint="add accounts with users and passwords to the server's configuration, and no no_auth_user",
    )


async def _server_configs(url: str, credentials: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The JetStream configuration of each server, by server name."""
    if not credentials.get("system_user"):
        raise Misconfigured(
            "the durability of acks cannot be checked without a user of the NATS system account",
            hint="give system_user and system_password in the credentials of the bus",
        )
    try:
        system = await NatsConnection.connect(
            url, user=credentials["system_user"], password=credentials.get("system_password", "")
        )
    except Denied as error:
        raise Misconfigured(
            "the NATS server refused the system credentials",
            hint="check system_user and system_password in the credentials of the bus",
        ) from error
    try:
        first = json.loads((await system.request("$SYS.REQ.SERVER.PING")).data)
        count = int(first.get("statsz", {}).get("active_servers", 1))
        seen: list[Msg] = []

        def is_last(reply: Msg) -> bool:
            seen.append(reply)
            return len(seen) >= count

        replies = await system.collect("$SYS.REQ.SERVER.PING.JSZ", b"{}", is_last)
    except NoResponder as error:
        raise Misconfigured(
            "the system credentials do not belong to the NATS system account",
            hint="set system_account in the server's configuration, and give a user of that account",
        ) from error
    except ValueError as error:
        raise unknown("a look at the server's settings", str(error)) from error
    finally:
        await system.close()
    answers = [json.loads(reply.data) for reply in replies]
    configs = {
        str(body["server"]["name"]): dict(body["data"]["config"])
        for body in answers
        if not body.get("data", {}).get("disabled") and body.get("data", {}).get("config")
    }
    if not configs:
        raise Misconfigured("JetStream is off on this NATS server", hint="add a jetstream block to its configuration")
    return configs


def _check_storage(server: str, config: Mapping[str, Any]) -> None:
    if not config.get("sync_always"):
        raise Misconfigured(
            f"the NATS server {server} acknowledges events before they are on disk: a power cut would lose them",
            hint="set sync_interval: always in the jetstream block of its configuration and restart it",
        )
    if int(config.get("max_storage", 0)) <= 0:
        raise Misconfigured(
            f"the NATS server {server} has no room for files", hint="set max_file_store in its jetstream block"
        )
