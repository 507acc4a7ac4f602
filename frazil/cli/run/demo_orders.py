"""The sample stream of the demo: orders of an imaginary shop, as several producers would send them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.client import Client

TABLE = "demo_orders"
BATCH = 500
COLUMNS: dict[str, Any] = {
    "customer": {"type": "string", "sensitivity": "personal", "description": "Who ordered."},
    "city": "string",
    "item": "struct<sku:string,quantity:int>",
    "amount": {"type": "decimal(12,2)", "description": "Price of the order in EUR."},
    "ordered_at": "timestamp",
    "tags": "list<string>",
}
_CITIES = ("Aarhus", "Bergen", "Gdansk", "Oulu", "Tartu")
_WARES = {"skates": "129.90", "thermos": "24.95", "mittens": "19.50", "sledge": "89.00", "auger": "149.99"}
_NAMES = ("Aino", "Bjarne", "Chiara", "Dorota", "Emil", "Freya", "Grzegorz", "Hanna")
_TAGS = ("gift", "express", "returning", "voucher")


@dataclass(frozen=True)
class Sent:
    """What a producer has receipts for."""

    events: int
    batches: int
    amount: Decimal
    token: str
    first_batch: Sequence[dict[str, Any]]

    @classmethod
    def together(cls, parts: Sequence[Sent]) -> Sent:
        from frazil.events import Token

        token = Token()
        for part in parts:
            token = token.merge(Token.parse(part.token))
        return cls(
            events=sum(part.events for part in parts),
            batches=sum(part.batches for part in parts),
            amount=sum((part.amount for part in parts), Decimal(0)),
            token=str(token),
            first_batch=parts[0].first_batch,
        )


def produce(client: Client, run: str, *, producer: int, batches: int) -> Sent:
    """Publish batches of orders, one after the other, and keep what the receipts say."""
    dice = random.Random(f"{run}/{producer}")  # noqa: S311 - sample data
    at = datetime.now(UTC) - timedelta(hours=dice.uniform(0, 36))
    first: list[dict[str, Any]] = []
    amount, token, accepted = Decimal(0), "", 0
    for _ in range(batches):
        events: list[dict[str, Any]] = []
        for _ in range(BATCH):
            at += timedelta(seconds=dice.expovariate(5))
            events.append(order(dice, run, f"{run}-{producer}-{accepted + len(events)}", at))
        receipt = client.publish(TABLE, events)
        amount += sum(Decimal(event["data"]["amount"]) for event in events)
        token, accepted = receipt.token, accepted + receipt.accepted + receipt.duplicates
        first = first or events
    return Sent(accepted, batches, amount, token, first)


def order(dice: random.Random, run: str, event_id: str, at: datetime) -> dict[str, Any]:
    sku = dice.choice(list(_WARES))
    quantity = dice.choice((1, 1, 1, 2, 3))
    return {
        "id": event_id,
        "source": run,
        "data": {
            "customer": f"{dice.choice(_NAMES)} {dice.randrange(10_000):04d}",
            "city": dice.choice(_CITIES),
            "item": {"sku": sku, "quantity": quantity},
            "amount": str(Decimal(_WARES[sku]) * quantity),
            "ordered_at": at.isoformat(),
            "tags": dice.sample(_TAGS, dice.randrange(3)),
        },
    }
