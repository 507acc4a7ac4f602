"""Quotas: who is refused and why, and that everything is given back whatever is cancelled when."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.access import KINDS, AccessSettings, Identity, Quotas
from frazil.access.identity import ADMIN
from frazil.access.quotas import Limit, QuotaExceeded
from frazil.errors import FrazilError, TooLarge, Unavailable

ANNA, BERT, CLEO = (Identity(name, name, ()) for name in ("anna", "bert", "cleo"))


def quotas() -> Quotas:
    return Quotas(requests=Limit(6, 4, 8), waits=Limit(3, 2, 4), memory=Limit(1000, 600, 1200))


def test_one_token_keeps_to_its_share_and_others_have_the_rest() -> None:
    ledger = quotas()
    with contextlib.ExitStack() as held:
        for _ in range(4):
            held.enter_context(ledger.request(ANNA))
        with pytest.raises(QuotaExceeded) as refused, ledger.request(ANNA):
            pass
        assert (refused.value.status, refused.value.code) == (429, "too_many_requests_in_flight")
        assert refused.value.hint and refused.value.retry_after_seconds > 0
        for _ in range(2):
            held.enter_context(ledger.request(BERT))
        with pytest.raises(Unavailable) as full, ledger.request(CLEO):
            pass
        assert (full.value.status, full.value.code) == (503, "overloaded")
        for _ in range(2):
            held.enter_context(ledger.request(ADMIN))  # the reserve
        with pytest.raises(Unavailable), ledger.request(ADMIN):
            pass
        assert ledger.refused("requests") == {"token": 1, "all": 2}
    assert ledger.used("requests") == 0
    with ledger.request(ANNA):
        assert ledger.used("requests", "anna") == 1


def test_waits_are_counted_once_for_each_request() -> None:
    ledger = quotas()
    with contextlib.ExitStack() as held:
        places = [held.enter_context(ledger.request(ANNA)) for _ in range(3)]
        with places[0].waiting(), places[0].waiting(), places[1].waiting():
            assert ledger.used("waits", "anna") == 2
            with pytest.raises(QuotaExceeded) as refused, places[2].waiting():
                pass
            assert refused.value.code == "too_many_waits"
            with held.enter_context(ledger.request(BERT)).waiting():
                with pytest.raises(Unavailable) as full, held.enter_context(ledger.request(CLEO)).waiting():
                    pass
                assert full.value.code == "overloaded"
                with held.enter_context(ledger.request(ADMIN)).waiting():
                    pass
        assert ledger.used("waits") == 0
        with places[2].waiting():
            pass


def test_memory_of_a_token_of_all_and_of_one_request() -> None:
    ledger = quotas()
    with ledger.request(ANNA) as one, ledger.request(ANNA) as two, ledger.request(BERT) as other:
        with one.memory() as memory:
            memory.take(400)
            memory.take(100)
            with pytest.raises(QuotaExceeded) as refused:
                two.take(200)
            assert (refused.value.status, refused.value.code) == (429, "too_many_bytes_in_flight")
            with pytest.raises(TooLarge) as never:
                memory.take(101)  # no waiting makes room for that
            assert never.value.code == "body_too_large"
            with pytest.raises(Unavailable) as full:
                other.take(501)
            assert full.value.code == "overloaded"
            with ledger.request(ADMIN) as admin:
                admin.take(700)
        assert ledger.used("bytes") == 0
        two.take(600)
    assert ledger.used("bytes") == 0, "what a request still holds goes with it"
    with pytest.raises(Unavailable):
        two.take(1)  # as a thread would that outlives its request
    two.give_back(600)
    assert ledger.used("bytes") == 0


def test_the_shares_follow_from_the_settings() -> None:
    made = Quotas.of(AccessSettings(), requests=256, memory_bytes=1 << 30)
    assert made.limit("requests") == Limit(256, 64, 272)
    assert made.limit("waits") == Limit(128, 32, 144)
    assert made.limit("bytes") == Limit((1 << 30) * 7 // 8, 768 << 20, 1 << 30)
    assert Quotas.of(AccessSettings(), requests=1, memory_bytes=1 << 30).limit("waits").per_token == 1


async def _request(ledger: Quotas, identity: Identity, seed: int) -> None:
    """What a request does, in some order, with a pause at every step where it can be cancelled."""
    chance = random.Random(seed)
    with contextlib.suppress(FrazilError), ledger.request(identity) as place, contextlib.ExitStack() as held:
        await asyncio.sleep(0)
        for _ in range(chance.randrange(5)):
            step = chance.randrange(5)
            if step == 0:
                held.enter_context(place.waiting())
            elif step == 1:
                held.enter_context(place.memory()).take(chance.randrange(300))
            elif step == 2:
                place.take(chance.randrange(200))
            elif step == 3:
                await asyncio.to_thread(place.take, chance.randrange(100))
            else:
                with place.waiting(), place.memory() as memory:
                    memory.take(chance.randrange(300))
                    await asyncio.sleep(0)
                    memory.give_back(chance.randrange(memory.size + 1))
                    await asyncio.sleep(0)
            await asyncio.sleep(0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=24), st.randoms())
@settings(max_examples=60)
def test_every_acquire_has_its_release_whatever_is_cancelled(
    requests: list[tuple[int, int]], chance: random.Random
) -> None:
    """Requests of four callers, each cancelled after some steps or not, and limits that many of them meet."""

    async def scenario() -> None:
        ledger = quotas()
        callers = (ANNA, BERT, CLEO, ADMIN)
        tasks = [
            (asyncio.create_task(_request(ledger, callers[who], chance.randrange(1 << 30))), steps)
            for who, steps in requests
        ]
        for step in range(13):
            for task, after in tasks:
                if after == step:
                    task.cancel()
            for kind in KINDS:
                assert 0 <= ledger.used(kind) <= ledger.limit(kind).with_admins
                for one in (ANNA, BERT, CLEO):
                    assert ledger.used(kind, one.id) <= ledger.limit(kind).per_token
            await asyncio.sleep(0)
        await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)
        assert [ledger.used(kind) for kind in KINDS] == [0, 0, 0]
        assert [ledger.used(kind, one.id) for kind in KINDS for one in callers] == [0] * 12

    asyncio.run(scenario())
