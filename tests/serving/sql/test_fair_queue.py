"""The fair queue without any worker: its rules, and that no place is lost whatever is cancelled when."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import pytest

from frazil.serving.sql import QuerySettings, QueryTimeout
from frazil.serving.sql.errors import Busy
from frazil.serving.sql.fair_queue import FairQueue, Slot

STEPS = 600


class ManualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until it is advanced."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return getattr(self, "now", 0.0)


def settings(**given: int) -> QuerySettings:
    return QuerySettings.model_validate({"workers": 1, "slow_workers": 2, "slow_per_owner": 1, **given})


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=ManualTime) as runner:
        runner.run(test)


async def ticks(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@dataclass(eq=False)
class Client:
    """A query: asks, holds its slot until it is told to go, and leaves."""

    queue: FairQueue
    owner: str
    seconds: float = 1e6
    go: asyncio.Event = field(default_factory=asyncio.Event)
    slot: Slot | None = None
    refused: Exception | None = None
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        try:
            async with self.queue.slot(self.owner, asyncio.get_running_loop().time() + self.seconds) as slot:
                self.slot = slot
                try:
                    await self.go.wait()
                finally:
                    self.slot = None
        except (Busy, QueryTimeout) as error:
            self.refused = error


async def holding(queue: FairQueue, owner: str) -> Client:
    client = Client(queue, owner)
    await ticks()
    assert client.slot is not None
    return client


async def waiting(queue: FairQueue, owner: str, seconds: float = 1e6) -> Client:
    client = Client(queue, owner, seconds)
    await ticks()
    assert client.slot is None
    return client


async def leave(*clients: Client) -> None:
    for client in clients:
        client.go.set()
    await ticks()


async def all_done(clients: list[Client]) -> None:
    for _ in range(100):
        if all(client.task.done() for client in clients):
            return
        await asyncio.sleep(0)
    raise AssertionError("somebody waits for ever")


def numbers(queue: FairQueue) -> tuple[int, int, int]:
    assert queue.faults() == []
    return queue.fast, queue.slow, queue.waiting


def move(queue: FairQueue, client: Client) -> None:
    assert client.slot is not None
    queue.move_to_slow_lane(client.slot)


def runs(client: Client) -> bool:
    return client.slot is not None


def is_slow(client: Client) -> bool:
    return client.slot is not None and client.slot.is_slow


async def test_owners_take_turns_however_many_queries_one_has() -> None:
    queue = FairQueue(settings())
    current = await holding(queue, "ann")
    crowd = [await waiting(queue, owner) for owner in ("eve", "eve", "eve", "bob", "eve", "cid")]
    served = []
    for _ in range(6):
        await leave(current)
        (current,) = [client for client in crowd if client.slot is not None]
        served.append(current.owner)
    assert served == ["eve", "bob", "cid", "eve", "eve", "eve"]
    await leave(current)
    assert numbers(queue) == (0, 0, 0)


async def test_a_slow_query_makes_room_and_its_owner_waits() -> None:
    queue = FairQueue(settings())
    slow = await holding(queue, "eve")
    next_of_eve, next_of_ann = await waiting(queue, "eve"), await waiting(queue, "ann")
    assert queue.others_wait("eve") and queue.others_wait("ann")
    move(queue, slow)
    assert not queue.others_wait("ann")  # what waits of eve could not start
    await ticks()
    assert runs(next_of_ann) and not runs(next_of_eve)
    await leave(next_of_ann)
    assert not runs(next_of_eve)
    await leave(slow)
    assert runs(next_of_eve)
    await leave(next_of_eve)


async def test_a_full_slow_lane_takes_the_next_when_one_leaves() -> None:
    moved: list[Slot] = []
    queue = FairQueue(settings(workers=3, slow_workers=1), moved.append)
    first, second, third = [await holding(queue, owner) for owner in "abc"]
    for client in (first, third, second):
        move(queue, client)
    slots = [client.slot for client in (first, third, second)]
    assert numbers(queue) == (2, 1, 0) and moved == slots[:1]
    await leave(first)
    assert is_slow(third) and moved == slots[:2]
    assert numbers(queue) == (1, 1, 0)
    # One that leaves before there was room is not moved any more, and what has left cannot be moved.
    await leave(second, third)
    assert numbers(queue) == (0, 0, 0) and moved == slots[:2]
    assert slots[0] is not None
    queue.move_to_slow_lane(slots[0])
    assert numbers(queue) == (0, 0, 0)


async def test_who_gives_up_leaves_no_trace() -> None:
    queue = FairQueue(settings())
    current = await holding(queue, "ann")
    late = Client(queue, "bob", 0.01)
    cancelled = await waiting(queue, "cid")
    await late.task
    assert isinstance(late.refused, QueryTimeout)
    cancelled.task.cancel()
    await ticks()
    assert numbers(queue) == (1, 0, 0)
    await leave(current)


async def test_a_place_granted_to_one_who_is_cancelled_goes_to_the_next() -> None:
    """Before the grant and after it, within one step of the event loop."""
    for before in (True, False):
        queue = FairQueue(settings())
        current = await holding(queue, "ann")
        unlucky, lucky = await waiting(queue, "bob"), await waiting(queue, "cid")
        current.go.set()
        if before:
            unlucky.task.cancel()  # its task learns of it after the place was given away
        await asyncio.sleep(0)
        if not before:
            unlucky.task.cancel()
        await ticks()
        assert unlucky.task.cancelled() and lucky.slot is not None
        assert numbers(queue) == (1, 0, 0)
        await leave(lucky)
        assert numbers(queue) == (0, 0, 0)


async def test_limits_of_waiting() -> None:
    queue = FairQueue(settings(max_queued_per_owner=2, max_queued=3))
    current = await holding(queue, "ann")
    crowd = [await waiting(queue, owner) for owner in ("eve", "eve", "bob")]
    for owner in ("eve", "cid"):
        refused = await waiting(queue, owner)
        assert isinstance(refused.refused, Busy)
    for client in crowd:
        client.task.cancel()
    await leave(current)
    assert numbers(queue) == (0, 0, 0)


async def test_who_has_a_slow_query_leaves_the_last_place_to_others() -> None:
    queue = FairQueue(settings(workers=2, slow_per_owner=2))
    first = await holding(queue, "eve")
    move(queue, first)
    second = await holding(queue, "eve")
    third = await waiting(queue, "eve")
    bob = await holding(queue, "bob")
    await leave(first, second)
    assert third.slot is not None
    await leave(third, bob)
    assert numbers(queue) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(30))
def test_random_cancellations(seed: int) -> None:
    """Clients come, are cancelled, time out, turn slow and leave, several of them within one step of the event loop."""
    run(_random_life(Random(seed)))


async def _random_life(random: Random) -> None:
    rules = settings(
        workers=random.choice([1, 2, 3]),
        slow_workers=random.choice([0, 1, 2]),
        slow_per_owner=random.choice([1, 2]),
        max_queued=12,
        max_queued_per_owner=6,
    )
    queue, clients = FairQueue(rules), list[Client]()
    for _ in range(STEPS):
        clients = [client for client in clients if not client.task.done()]
        _one_step(random, queue, clients)
        assert queue.faults() == []
        if random.random() < 0.5:
            await asyncio.sleep(0)
            assert queue.faults() == []
        if random.random() < 0.1:
            await ticks()
            _compare(queue, rules, clients)
    for client in clients:
        if random.random() < 0.5:
            client.task.cancel()
        client.go.set()
    await all_done(clients)
    assert numbers(queue) == (0, 0, 0)
    # All places can be had at once.
    fresh = [Client(queue, f"owner {number}") for number in range(rules.workers)]
    await ticks()
    assert all(client.slot is not None for client in fresh)
    await leave(*fresh)


def _one_step(random: Random, queue: FairQueue, clients: list[Client]) -> None:
    one = random.choice(clients) if clients else None
    choice = random.choice(["come", "come", "cancel", "cancel", "go", "go", "slow", "time"])
    if choice == "come":
        clients.append(Client(queue, random.choice("abcd"), random.choice([1.0, 3.0, 20.0, 1e6])))
    elif choice == "time":
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualTime)
        loop.now += random.choice([0.5, 1.0, 5.0])
    elif one is None:
        pass
    elif choice == "cancel":
        one.task.cancel()
    elif choice == "go":
        one.go.set()
    elif one.slot is not None:
        queue.move_to_slow_lane(one.slot)


def _compare(queue: FairQueue, rules: QuerySettings, clients: list[Client]) -> None:
    """The queue with what its clients know, when all of them have come to rest."""
    clients = [client for client in clients if not client.task.done()]
    held = [client for client in clients if client.slot is not None]
    fast = [client.owner for client in held if not is_slow(client)]
    slow = [client.owner for client in held if is_slow(client)]
    assert (queue.fast, queue.slow, queue.waiting) == (len(fast), len(slow), len(clients) - len(held))
    assert len(fast) <= rules.workers and len(slow) <= rules.slow_workers
    for owner in {client.owner for client in clients if client.slot is None}:
        most = max(1, rules.workers - 1) if owner in slow else rules.workers
        blocked = slow.count(owner) >= rules.slow_per_owner or fast.count(owner) >= most
        assert blocked or len(fast) == rules.workers, f"{owner} waits although it could run"


async def test_a_cancellation_at_every_step_of_every_client() -> None:
    """One fixed story, told again for each client and each step of the event loop in which it could be cancelled."""
    for victims in product(range(4), repeat=2):
        for moments in product(range(9), repeat=2):
            await _story(dict(zip(moments, victims, strict=True)))


async def _story(cancels: dict[int, int]) -> None:
    queue = FairQueue(settings(workers=1, slow_workers=1))
    clients = [Client(queue, owner) for owner in ("eve", "eve", "ann", "bob")]
    for moment in range(9):
        if moment in cancels:
            clients[cancels[moment]].task.cancel()
        assert queue.faults() == []
        await asyncio.sleep(0)
        assert queue.faults() == []
        if moment == 3 and clients[0].slot is not None:
            queue.move_to_slow_lane(clients[0].slot)
        for client in clients:
            if moment in (4, 6) and client.slot is not None:
                client.go.set()
                break
    for client in clients:
        client.go.set()
    await all_done(clients)
    assert numbers(queue) == (0, 0, 0)
    cancelled = {clients[victim] for victim in cancels.values()}
    assert all(client.task.exception() is None for client in clients if client not in cancelled)
