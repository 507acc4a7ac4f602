"""Tokens in the store: what is kept of them, and what happens when several change one at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from frazil.access import Grant, TokenRecord, parse_grants
from frazil.access.token_secret import digest
from frazil.access.token_store import TokenStore
from frazil.errors import Conflict, NotFound
from frazil.lake.catalog import Lake

GRANTS = parse_grants(["sql", {"scope": "read:notes", "where": "a > 1", "mask": {"email": "hash"}}])
NOW = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now

    def passes(self, **words: float) -> datetime:
        self.now += timedelta(**words)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(lake: Lake, clock: Clock) -> TokenStore:
    return TokenStore(lake.registry, clock=clock)


def test_what_is_made_is_kept(store: TokenStore, lake: Lake) -> None:
    made, secret = store.create("reports", GRANTS, created_by="admin", rate_per_second=2.5, burst=7)
    other = TokenStore(lake.registry)
    assert other.get(made.id) == made
    assert (made.name, made.grants, made.created_at, made.created_by) == ("reports", GRANTS, NOW, "admin")
    assert made.admits(digest(secret), NOW)
    assert not made.admits(digest(secret[:-1]), NOW)
    who = made.identity()
    assert (who.id, who.name, who.grants, who.rate_per_second, who.burst) == (made.id, "reports", GRANTS, 2.5, 7)


def test_the_newest_is_listed_first(store: TokenStore, clock: Clock) -> None:
    names = ["a", "b", "c"]
    for name in names:
        store.create(name, GRANTS, created_by="admin")
        clock.passes(seconds=1)
    assert [record.name for record in store.list()] == ["c", "b", "a"]


def test_the_secret_is_nowhere_in_the_database(store: TokenStore, tmp_path: Path) -> None:
    made, first = store.create("reports", GRANTS, created_by="admin")
    _, second = store.rotate(made.id, grace_seconds=60)
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
    assert made.id.encode() in kept
    for secret in (first, second):
        assert secret[17:-6].encode() not in kept
    told = str(store.get(made.id).body(NOW))
    assert first[17:-6] not in told and digest(second).hex() not in told and "digest" not in told


def test_expiry(store: TokenStore, clock: Clock) -> None:
    made, secret = store.create("a", GRANTS, created_by="admin", expires_at=NOW + timedelta(hours=1))
    assert made.admits(digest(secret), NOW + timedelta(minutes=59))
    assert not made.admits(digest(secret), NOW + timedelta(hours=1))
    clock.passes(hours=2)
    assert store.get(made.id).body(clock.now)["state"] == "expired"
    with pytest.raises(Conflict) as refused:
        store.rotate(made.id)
    assert refused.value.code == "token_expired"


def test_revoking(store: TokenStore, clock: Clock) -> None:
    made, first = store.create("a", GRANTS, created_by="admin")
    rotated, second = store.rotate(made.id, grace_seconds=3600)
    assert rotated.admits(digest(first), clock.now) and rotated.admits(digest(second), clock.now)
    at = clock.passes(seconds=5)
    revoked = store.revoke(made.id)
    clock.passes(seconds=5)
    assert store.revoke(made.id) == revoked == store.get(made.id)
    assert revoked.revoked_at == at
    assert not any(revoked.admits(digest(secret), at) for secret in (first, second))
    with pytest.raises(Conflict) as refused:
        store.rotate(made.id)
    assert refused.value.code == "token_revoked"


def test_rotating_without_grace_ends_every_old_secret(store: TokenStore, clock: Clock) -> None:
    made, first = store.create("a", GRANTS, created_by="admin")
    _, second = store.rotate(made.id, grace_seconds=3600)
    rotated, third = store.rotate(made.id)
    assert (rotated.id, rotated.grants, rotated.old_secrets) == (made.id, made.grants, ())
    assert [rotated.admits(digest(secret), NOW) for secret in (first, second, third)] == [False, False, True]


def test_old_secrets_work_until_their_grace_ends(store: TokenStore, clock: Clock) -> None:
    made, first = store.create("a", GRANTS, created_by="admin")
    store.rotate(made.id, grace_seconds=60)  # its answer was lost: nobody has the second secret
    clock.passes(seconds=30)
    rotated, third = store.rotate(made.id, grace_seconds=60)
    assert rotated.admits(digest(first), NOW + timedelta(seconds=59)), "who still has the first is not locked out"
    assert not rotated.admits(digest(first), NOW + timedelta(seconds=61)), "and gets no more time by that"
    assert rotated.admits(digest(third), NOW + timedelta(days=1000))
    assert rotated.body(clock.now)["old_secret_until"] == "2026-11-03T09:31:30Z"
    for _ in range(20):
        rotated, _ = store.rotate(made.id, grace_seconds=60)
    assert len(rotated.old_secrets) <= 4


def test_use_is_noted_once_a_minute(store: TokenStore) -> None:
    made, _ = store.create("a", GRANTS, created_by="admin")
    before = store.version()
    for seconds in (1, 2, 30, 61, 62):
        store.touch(made.id, NOW + timedelta(seconds=seconds))
    assert store.get(made.id).last_used_at == NOW + timedelta(seconds=62)
    assert store.version() == before + 2


@pytest.mark.parametrize("token_id", ["", "absent", "0123456789ab", "../x", "a/b", "a" * 300, "%", "é"])
def test_one_that_is_not_there(store: TokenStore, token_id: str) -> None:
    store.create("a", GRANTS, created_by="admin")
    calls: list[Callable[[str], object]] = [store.get, store.revoke, store.rotate]
    for call in calls:
        with pytest.raises(NotFound) as refused:
            call(token_id)
        assert refused.value.code == "token_not_found"


def test_a_revocation_is_never_lost(lake: Lake) -> None:
    """Rotations and notes of use at the same moment do not bring a revoked token back."""
    store = TokenStore(lake.registry)
    for _ in range(5):
        made, _ = store.create("a", GRANTS, created_by="admin")

        def rotate(token_id: str = made.id) -> None:
            for _ in range(5):
                try:
                    store.rotate(token_id, grace_seconds=60)
                except Conflict:
                    return

        def touch(token_id: str = made.id) -> None:
            for minutes in range(0, 20, 2):
                store.touch(token_id, datetime.now(UTC) + timedelta(minutes=minutes))

        with ThreadPoolExecutor(3) as pool:
            running: list[Future[Any]] = [
                pool.submit(rotate),
                pool.submit(touch),
                pool.submit(store.revoke, made.id),
            ]
            for one in running:
                one.result(60)
        kept = store.get(made.id)
        assert kept.state(datetime.now(UTC)) == "revoked"
        assert kept.old_secrets == ()


def test_a_damaged_document_closes_only_its_own_token(store: TokenStore, lake: Lake) -> None:
    good, _ = store.create("good", GRANTS, created_by="admin")
    bad, _ = store.create("bad", GRANTS, created_by="admin")
    before = store.version()
    document = lake.registry.get(f"token/{bad.id}")
    assert document is not None
    lake.registry.put(document.key, document.body[:-10], document.version)
    assert store.changed_since(before) == {bad.id: None}
    assert [record.name for record in store.list()] == ["good"]
    assert store.get(good.id) == good


def test_records_have_no_default_that_opens() -> None:
    record = TokenRecord("a", "a", digest("x"), (Grant("sql"),), NOW, "admin")
    assert not record.admits(b"", NOW)
    assert not record.admits(digest(""), NOW)
