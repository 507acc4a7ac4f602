"""What gateways know of tokens: new ones at once, revoked ones for a moment at most, nobody where nothing is sure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from frazil.access import AccessControl, AccessSettings, Identity, RateLimited, TokenRecord, parse_grants
from frazil.access.identity import ADMIN
from frazil.access.token_cache import _MAX_ABSENT, TokenCache
from frazil.access.token_secret import new_id, new_secret
from frazil.access.token_store import TokenStore
from frazil.errors import Denied, FrazilError, Unavailable
from frazil.lake.catalog import Lake, open_lake
from frazil.storage import Warehouse
from tests.contract.servers import running_postgres

ADMIN_TOKEN = "frz_" + "a" * 43
GRANTS = parse_grants(["sql", "read:notes"])
PATIENCE_SECONDS = 120.0
"""A bound against hanging on a busy machine, not a measurement."""


class Breakable(TokenStore):
    """The real store, behind a switch."""

    away = False
    looks = 0

    def version(self) -> int:
        self.looks += 1
        if self.away:
            raise Unavailable("the database is away", code="lake_unavailable")
        return super().version()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def gateway(lake: Lake, folder: Path, **settings: float) -> AsyncIterator[AccessControl]:
    access = AccessControl(
        registry=lake.registry,
        admin_token=ADMIN_TOKEN,
        audit_folder=folder / "audit",
        settings=AccessSettings(**settings),  # type: ignore[arg-type]
    )
    await access.start()
    try:
        yield access
    finally:
        await access.close()


async def refused(call: Awaitable[Identity]) -> FrazilError:
    with pytest.raises((Denied, Unavailable)) as told:
        await call
    return told.value


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await reached():
            await asyncio.sleep(0.02)


async def test_who_is_who(lake: Lake, tmp_path: Path) -> None:
    async with gateway(lake, tmp_path) as access:
        made, secret = access.tokens.create("reports", GRANTS, created_by="admin")
        assert await access.identify(ADMIN_TOKEN) == ADMIN
        assert await access.identify(secret) == made.identity()
        wrong = [
            "", "x", ADMIN_TOKEN + "a", ADMIN_TOKEN[:-1], secret[:-1], new_secret(made.id), new_secret(new_id()),
            made.digest.hex(), f"frz_{made.id}", "\xff" * 66,
        ]  # fmt: skip
        told = [await refused(access.identify(text)) for text in wrong]
        assert {(error.status, str(error.body())) for error in told} == {(401, str(told[0].body()))}


async def test_a_new_token_works_at_once_on_every_gateway(lake: Lake, tmp_path: Path) -> None:
    async with gateway(lake, tmp_path, poll_seconds=4) as one, gateway(lake, tmp_path, poll_seconds=4) as two:
        for _ in range(10):
            _, secret = one.tokens.create("a", GRANTS, created_by="admin")
            await two.identify(secret)
            await one.identify(secret)


async def test_a_revocation_holds_everywhere_in_time(lake: Lake, tmp_path: Path) -> None:
    async with gateway(lake, tmp_path) as one, gateway(lake, tmp_path) as two:
        made, secret = one.tokens.create("a", GRANTS, created_by="admin")
        await one.identify(secret)
        await two.identify(secret)
        two._known._store = store = Breakable(lake.registry)
        one.tokens.revoke(made.id)
        await one.see_changes()
        assert (await refused(one.identify(secret))).status == 401, "at once where it was done"

        async def is_refused() -> bool:
            try:
                await two.identify(secret)
            except Denied:
                return True
            return False

        await until(is_refused)
        assert store.looks <= 2, "by the next look, and the settings say that one comes within 4 s"


async def test_the_old_secret_of_a_rotation_ends_everywhere(lake: Lake, tmp_path: Path) -> None:
    async with gateway(lake, tmp_path, poll_seconds=0.05) as one, gateway(lake, tmp_path, poll_seconds=0.05) as two:
        made, old = one.tokens.create("a", GRANTS, created_by="admin")
        await two.identify(old)
        _, new = one.tokens.rotate(made.id)

        async def has_changed() -> bool:
            try:
                await two.identify(old)
            except Denied:
                return True
            return False

        await until(has_changed)
        assert (await two.identify(new)).id == made.id


async def test_use_is_noted(lake: Lake, tmp_path: Path) -> None:
    async with gateway(lake, tmp_path, poll_seconds=0.02) as access:
        made, secret = access.tokens.create("a", GRANTS, created_by="admin")
        for _ in range(20):
            await access.identify(secret)

        async def noted() -> bool:
            return (await asyncio.to_thread(access.tokens.get, made.id)).last_used_at is not None

        await until(noted)
        version = access.tokens.version()
        for _ in range(20):
            await access.identify(secret)
            await asyncio.sleep(0.005)
        assert access.tokens.version() == version, "once a minute is enough"


async def test_rates_by_token_and_by_settings(lake: Lake, tmp_path: Path) -> None:
    async with gateway(lake, tmp_path, rate_per_second=0.001, burst=2) as access:
        plain = Identity("plain", "plain", GRANTS)
        own = Identity("own", "own", GRANTS, rate_per_second=0.001, burst=4)
        admin = Identity("boss", "boss", parse_grants(["admin"]))
        limited_admin = Identity("boss2", "boss2", parse_grants(["admin"]), rate_per_second=0.001, burst=1)
        for identity, passes in ((plain, 2), (own, 4), (limited_admin, 1)):
            for _ in range(passes):
                access.admit(identity)
            with pytest.raises(RateLimited) as told:
                access.admit(identity)
            assert (told.value.status, told.value.code) == (429, "rate_limited")
            assert 900 < told.value.retry_after_seconds <= 1000
        for _ in range(1000):
            access.admit(admin)
            access.admit(ADMIN)


def known(store: TokenStore, clock: Clock) -> TokenCache:
    return TokenCache(store, poll_seconds=3600, stale_seconds=60, clock=clock)


async def test_while_the_store_is_away_known_tokens_go_on_for_a_while(lake: Lake) -> None:
    clock, store = Clock(), Breakable(lake.registry)
    made, _ = store.create("a", GRANTS, created_by="admin")
    tokens = known(store, clock)
    await tokens.look()
    other, _ = store.create("b", GRANTS, created_by="admin")
    store.away = True
    clock.now += 59
    assert await tokens.find(made.id) == made
    with pytest.raises(Unavailable) as told:
        await tokens.find(other.id)
    assert told.value.code == "tokens_unavailable", "a new one is neither let in nor called wrong"
    clock.now += 2
    with pytest.raises(Unavailable):
        await tokens.find(made.id)
    store.away = False
    await tokens.look()
    assert await tokens.find(made.id) == made
    assert await tokens.find(other.id) == other


async def test_a_store_that_was_never_there(lake: Lake, tmp_path: Path) -> None:
    store = Breakable(lake.registry)
    store.away = True
    tokens = known(store, Clock())
    await tokens.start()
    with pytest.raises(Unavailable):
        await tokens.find(new_id())
    await tokens.close()


async def test_unknown_ids_share_looks(lake: Lake) -> None:
    """A flood of made-up tokens costs the database no more than one look at a time, and memory has a bound."""
    clock, store = Clock(), Breakable(lake.registry)
    tokens = known(store, clock)
    await tokens.look()
    before = store.looks
    ids = [new_id() for _ in range(2 * _MAX_ABSENT)]
    assert await asyncio.gather(*(tokens.find(token_id) for token_id in ids)) == [None] * len(ids)
    assert store.looks - before <= 3
    assert len(tokens._absent) <= _MAX_ABSENT
    before = store.looks
    for _ in range(50):
        assert await tokens.find(ids[-1]) is None
    assert store.looks == before, "the same one again is not looked for again"
    clock.now += 2
    await tokens.find(ids[-1])
    assert store.looks == before + 1


async def test_a_look_that_is_cancelled_counts_for_nobody(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who wait for it look for themselves, and find what it would have found."""
    store = Breakable(lake.registry)
    tokens = known(store, Clock())
    await tokens.look()
    began, may_end, version = threading.Semaphore(0), threading.Semaphore(0), store.version

    def slow() -> int:
        began.release()
        may_end.acquire(timeout=20)
        return version()

    monkeypatch.setattr(store, "version", slow)
    first = asyncio.create_task(tokens.look())
    await asyncio.to_thread(began.acquire)
    leaving, staying = asyncio.create_task(tokens.look()), asyncio.create_task(tokens.look())
    await asyncio.sleep(0)
    may_end.release()
    await first
    record, _ = store.create("a", GRANTS, created_by="admin")
    await asyncio.to_thread(began.acquire)  # the one that leaves looks, for both
    monkeypatch.setattr(store, "version", version)
    leaving.cancel()
    may_end.release()
    await asyncio.wait_for(staying, 20)
    assert record.id in tokens._records


async def test_the_follower_of_tokens_outlives_whatever_is_raised(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Breakable(lake.registry)
    tokens = TokenCache(store, poll_seconds=0.01, stale_seconds=60)
    await tokens.start()
    version, failures = store.version, list[int]()

    def broken() -> int:
        failures.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr(store, "version", broken)
    async with asyncio.timeout(20):
        while len(failures) < 3:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(store, "version", version)
        record, _ = store.create("a", GRANTS, created_by="admin")
        while record.id not in tokens._records:
            await asyncio.sleep(0.01)
    await tokens.close()


async def test_waiters_of_a_failed_look_are_told_so(lake: Lake) -> None:
    store = Breakable(lake.registry)
    tokens = known(store, Clock())
    await tokens.look()
    store.away = True
    found = await asyncio.gather(*(tokens.find(new_id()) for _ in range(20)), return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable] * 20


async def test_a_catalog_restored_from_a_backup_is_read_anew(lake: Lake, tmp_path: Path) -> None:
    """The change numbers go back then; a token that the backup does not have must not live on here."""
    folder = tmp_path / "older"
    backup = open_lake(f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse"))
    store = TokenStore(lake.registry)
    kept: list[TokenRecord] = [store.create(name, GRANTS, created_by="admin")[0] for name in "abc"]
    tokens = known(store, Clock())
    await tokens.look()
    tokens._store = TokenStore(backup.registry)
    newer, _ = tokens._store.create("d", GRANTS, created_by="admin")
    await tokens.look()
    assert await tokens.find(newer.id) == newer
    assert [await tokens.find(record.id) for record in kept] == [None, None, None]
    backup.close()


async def test_a_postgres_that_hangs_and_dies(tmp_path: Path) -> None:
    warehouse = Warehouse(f"file://{tmp_path}/warehouse")
    with running_postgres() as server:
        lake = open_lake(server.url, warehouse, **server.credentials)
        async with gateway(lake, tmp_path, poll_seconds=0.1, stale_seconds=5) as access:
            _, secret = access.tokens.create("a", GRANTS, created_by="admin")
            await access.identify(secret)
            server.pause()
            await asyncio.sleep(0.3)
            await access.identify(secret)
            assert await access.identify(ADMIN_TOKEN) == ADMIN
            assert (await refused(access.identify(new_secret(new_id())))).code == "tokens_unavailable"

            async def is_closed() -> bool:
                try:
                    await access.identify(secret)
                except Unavailable:
                    return True
                return False

            await until(is_closed)
            assert await access.identify(ADMIN_TOKEN) == ADMIN
            server.resume()
            server.kill()
            assert await is_closed()
            server.start()

            async def is_open() -> bool:
                return not await is_closed()

            await until(is_open)
        lake.close()
