"""The other half of `bench entity`: from the receipt of a batch to the answer that holds it, against a log table.

The whole product runs as `frazil up` starts it. An entity and a log of the same columns have as many records; then each
in turn is sent a batch and asked for the last record of it, live and with the receipt's token. Folds and commits go on
meanwhile as they do.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import entity_load, load
from benchmarks.entity_load import BATCH
from benchmarks.processes import a_program, running_product, settings_in
from benchmarks.report import percentile, say
from frazil.client import Client
from frazil.errors import FrazilError, Unavailable
from frazil.runtime import DataDir
from frazil.settings import Settings

TABLES = {"records": "entity", "visits": "log"}
_WARM_UPS = 5
_FOLD_SECONDS = 600.0
_PRODUCERS = 8


@dataclass
class Reading:
    """Seconds of the receipts, and from a receipt to the answer."""

    receipts: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)

    def told(self) -> dict[str, float]:
        return {
            "p50_ms": 1000 * percentile(self.visible, 0.5),
            "p99_ms": 1000 * percentile(self.visible, 0.99),
            "receipt_p50_ms": 1000 * percentile(self.receipts, 0.5),
        }


def read_back(folder: Path, *, rows: int, batches: int) -> dict[str, Reading]:
    """What each table took, by its kind."""
    settings = settings_in(folder / "product")
    with running_product(settings) as client:
        for name, kind in TABLES.items():
            _fill(client, settings, folder, name, kind, rows)
        _wait_for_folds(client, rows)
        say(f"{rows:,} records are in both tables, and folded")
        taken = {kind: Reading() for kind in TABLES.values()}
        for number in range(_WARM_UPS + batches):
            for name, kind in TABLES.items():
                receipt, visible = _batch(client, name, number * BATCH % rows, rows)
                if number >= _WARM_UPS:
                    taken[kind].receipts.append(receipt)
                    taken[kind].visible.append(visible)
    return taken


def _fill(client: Client, settings: Settings, folder: Path, name: str, kind: str, rows: int) -> None:
    client.create_table(**entity_load.declaration(name, kind))
    access = {"FRAZIL_URL": settings.address, "FRAZIL_TOKEN": DataDir(settings.data_dir).read_token()}
    packed = folder / "bodies"
    load.pack_bodies(packed, entity_load.bodies(uuid.uuid4().hex[:12], range(rows - 1)))
    with a_program("producers", folder, environment=access) as producers:
        producers.ask({"bodies": str(packed), "table": name, "producers": _PRODUCERS})
    packed.unlink()
    last = entity_load.ndjson(uuid.uuid4().hex[:12], [rows - 1])
    client.publish_body(name, last, "application/x-ndjson", wait=True, timeout_s=300)


def _wait_for_folds(client: Client, rows: int) -> None:
    deadline = time.monotonic() + _FOLD_SECONDS
    while (told := client.status()["tables"]["records"])["unfolded"] or told["rows"] != rows:
        if time.monotonic() > deadline:
            raise Unavailable(f"the entity is not folded: {told}")
        time.sleep(0.5)


def _batch(client: Client, name: str, first: int, rows: int) -> tuple[float, float]:
    run = uuid.uuid4().hex[:12]
    keys = [(first + at) % rows for at in range(BATCH)]
    body = entity_load.ndjson(run, keys)
    began = time.perf_counter()
    receipt = client.publish_body(name, body, "application/x-ndjson")
    received = time.perf_counter()
    answer = client.sql(
        f"SELECT balance FROM {name} WHERE id = ? AND name = ?",  # noqa: S608
        [keys[-1], f"{run} {keys[-1]}"],
        min_token=receipt.token,
    )
    visible = time.perf_counter() - received
    if len(answer) != 1:
        raise FrazilError(f"a batch of {name} has its receipt, and its last record is in {len(answer)} rows")
    return received - began, visible
