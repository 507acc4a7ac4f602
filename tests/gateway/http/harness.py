"""A gateway over real parts, spoken to through its ASGI application, and a small committer in the pipeline's place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from frazil.access import AccessControl, AccessSettings
from frazil.bus import EventBus
from frazil.events import IS_NEW, IdWindow, complete_messages, first_position, id_keys, rows, sequence_of
from frazil.gateway import Gateway
from frazil.gateway.http.app import create_app
from frazil.gateway.http.bodies import BodyReader
from frazil.gateway.search import ShelfReaders
from frazil.gateway.search.shelf_follower import FollowPace
from frazil.lake.catalog import WATERMARK, Lake, LakeTable
from frazil.lake.catalog.table import WATERMARK_SEQUENCE
from frazil.runtime import assemble_gateway
from frazil.serving import SearchSettings
from frazil.serving.sql import QueryPool
from frazil.settings import IngestSettings
from frazil.storage import Journal
from frazil.tables import TableDirectory

TOKEN = "frz_a-token-for-tests-that-is-long-enough-to-be-one"
PATIENCE_SECONDS = 120.0
NDJSON = {"content-type": "application/x-ndjson"}
ORDERS = {"name": "orders", "columns": {"item": "string", "amount": "long"}}


@dataclass
class Running:
    gateway: Gateway
    http: httpx.AsyncClient

    async def declare(self, **changes: Any) -> dict[str, Any]:
        answer = await self.http.post("/v1/tables", json={**ORDERS, **changes})
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    async def send(self, events: Sequence[dict[str, Any]], *, table: str = "orders", query: str = "") -> httpx.Response:
        return await self.http.post(f"/v1/tables/{table}/events{query}", json={"events": list(events)})

    async def token(self, *grants: Any) -> dict[str, str]:
        """The headers of a new token with these grants."""
        answer = await self.http.post("/v1/tokens", json={"name": "a test", "grants": list(grants)})
        assert answer.status_code == 201, answer.text
        return {"authorization": f"Bearer {answer.json()['token']}"}

    async def accept(self, events: Sequence[dict[str, Any]], *, table: str = "orders") -> dict[str, Any]:
        answer = await self.send(events, table=table)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())


@asynccontextmanager
async def running(
    bus: EventBus,
    lake: Lake,
    folder: Path,
    *,
    bodies: BodyReader | None = None,
    access: AccessSettings | None = None,
    pool: QueryPool | None = None,
    served: ShelfReaders | None = None,
    pace: FollowPace | None = None,
    reader: str = "one",
    **settings: Any,
) -> AsyncIterator[Running]:
    """A started gateway. Several on the same bus, lake and folder are gateways of one installation.

    With a `pace` it serves searches, and is called `reader` among those that do; `served`: as these readers do.
    """
    directory = TableDirectory(lake)
    journal = Journal(folder / "journal")
    readers = ShelfReaders(
        lake=lake,
        bus=bus,
        directory=directory,
        models={},
        settings=SearchSettings(),
        cache=folder / f"cache-{reader}",
        journal=journal,
        reader=reader,
        pace=pace,
    )
    gateway = assemble_gateway(
        bus=bus,
        lake=lake,
        journal=journal,
        access=AccessControl(registry=lake.registry, admin_token=TOKEN, audit_folder=folder / "audit", settings=access),
        ingest=IngestSettings(**settings),
        pool=pool,
        pipeline_file=folder / "pipeline.json",
        uploads=folder / "uploads",
        directory=directory,
        served=served if pace is None else readers,
    )
    await gateway.start()
    transport = httpx.ASGITransport(create_app(gateway, bodies=bodies), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers, timeout=60) as http:
        yield Running(gateway, http)
    await gateway.close()


async def eventually(reached: Callable[[], Awaitable[object]]) -> None:
    """The bound is against hanging on a busy machine, not a measurement."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await reached():
            await asyncio.sleep(0.05)


def event(event_id: str, item: str = "ice", amount: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": event_id, "data": {"item": item, "amount": amount}, **more}


def ndjson(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in events)


async def on_the_bus(bus: EventBus, lake: Lake, name: str = "main.orders") -> pa.Table:
    """All events that stand on the bus above the watermark, in order, as the pipeline would read them."""
    table = lake.table(name)
    stream = await bus.open(table.stream)
    found = []
    following = sequence_of(table.watermark)
    while page := await stream.read(following):
        found += page
        following = page[-1].sequence + 1
    return rows(complete_messages(found)[0], table.spec.row_schema())


async def commit(bus: EventBus, lake: Lake, name: str = "main.orders", *, trim: bool = False) -> LakeTable:
    """What the pipeline does, in small: all events above the watermark become rows, each id once."""
    table = lake.table(name)
    events = await on_the_bus(bus, lake, name)
    stream = await bus.open(table.stream)
    window = IdWindow(24 * 3600)
    for known in table.scan(["_id", "_seq", "_received_at"]):
        received = known.column("_received_at").cast(pa.int64()).to_numpy()
        window.add(id_keys(known.column("_id")), known.column("_seq").to_numpy(), received)
    verdict = window.judge(id_keys(events["_id"]), events["_received_at"].cast(pa.int64()).to_numpy())
    watermark = str(first_position(await stream.head() + 1))
    # A table of its own: a transaction changes the object it is opened on, and others hold `table`.
    with lake.catalog.load_table(name).transaction() as transaction:
        transaction.append(events.filter(pa.array(verdict == IS_NEW)), snapshot_properties={WATERMARK: watermark})
        marked = transaction.table_metadata.current_snapshot()
        assert marked is not None
        transaction.set_properties({WATERMARK: watermark, WATERMARK_SEQUENCE: str(marked.sequence_number)})
    if trim:
        await stream.trim(sequence_of(int(watermark)))
    return lake.table(name)


def stored_ids(lake: Lake, name: str = "main.orders") -> list[str]:
    found: list[str] = lake.catalog.load_table(name).scan().to_arrow().sort_by("_seq")["_id"].to_pylist()
    return found
