"""Backends: the bus, the lake and the journal, opened from settings for gateway and pipeline alike."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.bus import EventBus, open_bus
from frazil.errors import Misconfigured, Unavailable
from frazil.settings import Settings
from frazil.storage import Journal, Warehouse

if TYPE_CHECKING:
    from frazil.lake.catalog import Lake

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backends:
    """The bus, the lake and the journal of one process."""

    bus: EventBus
    lake: Lake
    journal: Journal

    async def close(self) -> None:
        await self.bus.close()
        self.lake.close()


async def open_parts(settings: Settings) -> Backends:
    """Connect to all of them. A bus that is still starting is waited for."""
    bus = await connect_bus(settings)
    lake = await asyncio.to_thread(open_the_lake, settings)
    return Backends(bus, lake, open_journal(settings))


async def connect_bus(settings: Settings) -> EventBus:
    """The bus, once it answers and its acknowledgements are verified. Raises `Misconfigured` if they are not true."""
    url = settings.bus.url
    if url is None:
        raise Misconfigured("there is no bus to connect to", hint="start with `frazil up`, or set bus.url")
    is_logged = False
    while True:
        try:
            bus = await open_bus(
                url, credentials=bus_credentials(settings), max_bytes=int(settings.bus.max_stream_bytes)
            )
            try:
                log.info("bus durability verified: %s", await bus.check())
            except BaseException:
                await bus.close()
                raise
            return bus
        except Unavailable as error:
            if not is_logged:
                log.info("bus not reachable yet: %s", error)
            is_logged = True
            await asyncio.sleep(0.1)


def bus_credentials(settings: Settings) -> Mapping[str, str]:
    bus = settings.bus
    found = {
        "user": bus.user,
        "password": bus.password.get_secret_value() if bus.password else None,
        "system_user": bus.system_user,
        "system_password": bus.system_password.get_secret_value() if bus.system_password else None,
    }
    return {name: value for name, value in found.items() if value}


def open_warehouse(settings: Settings) -> Warehouse:
    warehouse = settings.warehouse
    secret = warehouse.secret_access_key
    return Warehouse(
        settings.warehouse_url,
        endpoint=warehouse.endpoint,
        region=warehouse.region,
        path_style=warehouse.path_style,
        access_key_id=warehouse.access_key_id or "",
        secret_access_key=secret.get_secret_value() if secret else "",
    )


def open_the_lake(settings: Settings) -> Lake:
    from frazil.lake.catalog import open_lake

    return open_lake(
        settings.catalog_url,
        open_warehouse(settings),
        name=settings.catalog.name,
        user=settings.catalog.user or "",
        password=catalog_password(settings),
    )


def catalog_password(settings: Settings) -> str:
    return settings.catalog.password.get_secret_value() if settings.catalog.password else ""


def open_journal(settings: Settings) -> Journal:
    return Journal(settings.data_dir / "journal")
