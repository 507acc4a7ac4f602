"""/v1/tokens, and what a token is from its first request to its last."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest

from frazil.access import AccessSettings
from frazil.access.token_secret import new_id, new_secret
from frazil.bus.memory import MemoryBus
from frazil.errors import InvalidInput
from frazil.gateway import Gateway
from frazil.lake.catalog import Lake, LakeTable
from tests.gateway.http.harness import TOKEN, Running, event, eventually, running


async def made(gateway: Running, *grants: Any, **words: Any) -> dict[str, Any]:
    answer = await gateway.http.post("/v1/tokens", json={"name": "a test", "grants": list(grants), **words})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def bearing(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def logged(gateway: Running, action: str) -> list[dict[str, Any]]:
    files = sorted(gateway.gateway.access.audit.folder.iterdir())
    entries = [json.loads(line) for path in files for line in path.read_text().splitlines() if line]
    return [entry for entry in entries if entry["action"] == action]


async def test_the_life_of_a_token(gateway: Running) -> None:
    token = await made(gateway, "read:orders", "ingest:orders")
    assert token["prefix"] == f"frz_{token['id']}" and token["token"].startswith(token["prefix"] + "_")
    assert token["grants"] == [{"scope": "read:orders"}, {"scope": "ingest:orders"}]
    assert (token["state"], token["created_by"], token["expires_at"]) == ("active", "admin", None)
    first = bearing(token["token"])
    assert (await gateway.http.get("/v1/tables/orders", headers=first)).status_code == 200

    answer = await gateway.http.post(f"/v1/tokens/{token['id']}/rotate", json={"grace_s": 60})
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    second = bearing(answer.json()["token"])
    for headers in (first, second):
        assert (await gateway.http.get("/v1/tables/orders", headers=headers)).status_code == 200
    answer = await gateway.http.post(f"/v1/tokens/{token['id']}/rotate")
    third = bearing(answer.json()["token"])
    told = [(await gateway.http.get("/v1/tables/orders", headers=one)).status_code for one in (first, second, third)]
    assert told == [401, 401, 200], "at once"

    revoked = await gateway.http.delete(f"/v1/tokens/{token['id']}")
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    assert (await gateway.http.get("/v1/tables/orders", headers=third)).status_code == 401
    assert (await gateway.http.delete(f"/v1/tokens/{token['id']}")).json() == revoked.json()
    assert (await gateway.http.get(f"/v1/tokens/{token['id']}")).json() == revoked.json()
    answer = await gateway.http.post(f"/v1/tokens/{token['id']}/rotate")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "token_revoked")
    assert [entry["id"] for entry in (await gateway.http.get("/v1/tokens")).json()["tokens"]] == [token["id"]]


async def test_the_secret_is_told_once_and_never_logged(
    gateway: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    token = await made(gateway, "read:orders")
    secret = token["token"]
    told = [
        (await gateway.http.get(f"/v1/tokens/{token['id']}")).text,
        (await gateway.http.get("/v1/tokens")).text,
        (await gateway.http.get(f"/v1/tokens/{secret}")).text,
        (await gateway.http.get("/v1/status", headers=bearing(secret))).text,
        (await gateway.http.get("/v1/status", headers=bearing(secret[:-1] + "!"))).text,
        (await gateway.http.get("/v1/journal")).text,
        (await gateway.http.get("/metrics")).text,
        str([record.getMessage() for record in caplog.records if record.name.startswith("frazil")]),
        "".join(path.read_text() for path in gateway.gateway.access.audit.folder.iterdir()),
        *(path.read_bytes().decode("latin-1") for path in tmp_path.glob("catalog.db*")),
    ]
    for text in told:
        assert secret[17:-6] not in text


async def test_an_admin_token_of_the_store_is_an_admin(gateway: Running) -> None:
    token = await made(gateway, "admin")
    answer = await gateway.http.post(
        "/v1/tokens", json={"name": "by it", "grants": ["sql"]}, headers=bearing(token["token"])
    )
    assert answer.status_code == 201
    assert answer.json()["created_by"] == token["id"]


async def test_expiry(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await made(gateway, "read:orders", expires_in_s=3600)
    left = datetime.fromisoformat(token["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    at = datetime.now(UTC) + timedelta(hours=2)
    token = await made(gateway, "read:orders", expires_at=at.isoformat())

    class Clock(datetime):
        moment = at

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(cls.moment.timestamp(), tz)

    for module in ("frazil.access.access_control", "frazil.gateway.http.routes.tokens"):
        monkeypatch.setattr(f"{module}.datetime", Clock)
    for seconds, status, state in ((-1, 200, "active"), (1, 401, "expired")):
        Clock.moment = at + timedelta(seconds=seconds)
        answer = await gateway.http.get("/v1/tables/orders", headers=bearing(token["token"]))
        assert answer.status_code == status
        assert (await gateway.http.get(f"/v1/tokens/{token['id']}")).json()["state"] == state


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], "bad_token_request"),
        ({}, "bad_grant"),
        ({"name": "a"}, "bad_grant"),
        ({"grants": ["sql"]}, "bad_token_request"),
        ({"name": " ", "grants": ["sql"]}, "bad_token_request"),
        ({"name": "a\nb", "grants": ["sql"]}, "bad_token_request"),
        ({"name": "a" * 201, "grants": ["sql"]}, "bad_token_request"),
        ({"name": 1, "grants": ["sql"]}, "bad_token_request"),
        ({"name": "a", "grants": []}, "bad_grant"),
        ({"name": "a", "grants": ["write:orders"]}, "bad_grant"),
        ({"name": "a", "grants": ["read:Orders"]}, "bad_table_name"),
        ({"name": "a", "grants": ["sql"], "expires_in": 5}, "unknown_field"),
        ({"name": "a", "grants": ["sql"], "expires_in_s": 0}, "bad_token_request"),
        ({"name": "a", "grants": ["sql"], "expires_in_s": True}, "bad_token_request"),
        ({"name": "a", "grants": ["sql"], "expires_in_s": 1e12}, "bad_token_request"),
        ({"name": "a", "grants": ["sql"], "expires_at": "2001-01-01T00:00:00Z"}, "bad_expiry"),
        ({"name": "a", "grants": ["sql"], "expires_at": "2030-01-01T00:00:00"}, "bad_expiry"),
        ({"name": "a", "grants": ["sql"], "expires_at": "9999-12-31T23:59:59-14:00"}, "bad_expiry"),
        ({"name": "a", "grants": ["sql"], "expires_at": "tomorrow"}, "bad_expiry"),
        ({"name": "a", "grants": ["sql"], "expires_at": 5}, "bad_expiry"),
        ({"name": "a", "grants": ["sql"], "expires_at": "2030-01-01T00:00:00Z", "expires_in_s": 5}, "bad_expiry"),
        ({"name": "a", "grants": ["sql"], "rate_per_second": 0}, "bad_token_request"),
        ({"name": "a", "grants": ["sql"], "rate_per_second": "5"}, "bad_token_request"),
        ({"name": "a", "grants": ["sql"], "burst": 0}, "bad_token_request"),
        ({"name": "a", "grants": ["sql"], "burst": 1.5}, "bad_token_request"),
        ({"name": "a", "grants": [{"scope": "read:orders", "mask": ["nothing"]}]}, "bad_grant"),
        ({"name": "a", "grants": [{"scope": "read:orders", "mask": {"amount": "hash"}}]}, "bad_grant"),
        ({"name": "a", "grants": [{"scope": "read:orders", "mask": {"amount": "redact"}}]}, "bad_grant"),
        ({"name": "a", "grants": [{"scope": "read:orders", "mask": ["_seq"]}]}, "bad_grant"),
        ({"name": "a", "grants": [{"scope": "read:absent", "mask": ["item"]}]}, "table_not_found"),
    ],
)
async def test_tokens_that_cannot_be(gateway: Running, body: Any, code: str) -> None:
    answer = await gateway.http.post("/v1/tokens", json=body)
    assert answer.status_code == (404 if code == "table_not_found" else 422), answer.text
    assert answer.json()["error"]["code"] == code
    assert (await gateway.http.get("/v1/tokens")).json() == {"tokens": []}, "nothing was made"


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"grace": 1}', b'{"grace_s": -1}', b'{"grace_s": 1e9}', b"null"])
async def test_rotations_that_cannot_be(gateway: Running, body: bytes) -> None:
    token = await made(gateway, "read:orders")
    answer = await gateway.http.post(f"/v1/tokens/{token['id']}/rotate", content=body)
    assert answer.status_code == 422, answer.text
    assert (await gateway.http.get("/v1/tables/orders", headers=bearing(token["token"]))).status_code == 200


async def test_masks_are_kept_as_they_were_judged(gateway: Running) -> None:
    token = await made(
        gateway,
        {"scope": "read:orders", "mask": {"item": "hash", "amount": "null", "_actor": "redact"}},
    )
    assert token["grants"][0]["mask"] == {"_actor": "redact", "amount": "null", "item": "hash"}


async def test_a_filter_is_judged_before_it_is_kept(
    memory_bus: MemoryBus, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[tuple[str, str]] = []

    async def judge(gateway: Gateway, table: LakeTable, expression: str) -> None:
        judged.append((table.name, expression))
        if "item" not in expression:
            raise InvalidInput("no such column", code="bad_sql")

    monkeypatch.setattr(Gateway, "check_filter", judge)
    async with running(memory_bus, lake, tmp_path) as gateway:
        await gateway.declare()
        token = await made(gateway, {"scope": "read:orders", "where": "item = 'ice'"})
        assert token["grants"] == [{"scope": "read:orders", "where": "item = 'ice'"}]
        refused = await gateway.http.post(
            "/v1/tokens", json={"name": "a", "grants": ["sql", {"scope": "read:orders", "where": "price > 1"}]}
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_sql")
        assert judged == [("main.orders", "item = 'ice'"), ("main.orders", "price > 1")]
        assert len((await gateway.http.get("/v1/tokens")).json()["tokens"]) == 1


async def test_changes_and_refusals_are_in_the_audit_log(gateway: Running) -> None:
    token = await made(gateway, "read:orders", "ingest:sales.*")
    await gateway.http.post(f"/v1/tokens/{token['id']}/rotate", json={"grace_s": 60})
    headers = bearing(token["token"])
    await gateway.http.post("/v1/tables/orders/events", json={"events": [event("a")]}, headers=headers)
    await gateway.http.get("/v1/tables/hidden", headers=headers)
    await gateway.http.get("/v1/status", headers=headers)
    await gateway.http.get("/v1/status", headers=bearing(new_secret(token["id"])))
    await gateway.http.get("/v1/tables/" + "x" * 500, headers=headers)
    await gateway.http.get("/v1/tables/absent")
    await gateway.http.delete(f"/v1/tokens/{token['id']}")
    (created,), (rotated,), (revoked,) = (logged(gateway, f"token.{verb}") for verb in ("create", "rotate", "revoke"))
    for entry in (created, rotated, revoked):
        assert (entry["token_id"], entry["subject"], entry["outcome"]) == ("admin", token["id"], "ok")
    assert created["tables"] == ["main.orders", "sales.*"]
    told = [
        (entry["outcome"], entry.get("token_id"), entry.get("token_name"), entry["tables"], entry["subject"])
        for entry in logged(gateway, "denied")
    ]
    assert told == [
        ("forbidden", token["id"], "a test", ["main.orders"], "POST /v1/tables/{table}/events"),
        ("table_not_found", token["id"], "a test", ["main.hidden"], "GET /v1/tables/{table}"),
        ("forbidden", token["id"], "a test", [], "GET /v1/status"),
        ("unauthorized", token["id"], None, [], "GET none"),
    ]
    assert all(entry["client"] == "127.0.0.1" for entry in logged(gateway, "denied"))


async def test_a_flood_of_refusals_does_not_fill_the_log(gateway: Running) -> None:
    for _ in range(300):
        answer = await gateway.http.get("/v1/status", headers=bearing(new_secret(new_id())))
        assert answer.status_code == 401
    await gateway.gateway.access.close()
    entries = logged(gateway, "denied")
    assert sum(entry.get("left_out", 1) for entry in entries) == 300
    assert len(entries) < 200


async def test_a_token_has_its_rate(gateway: Running) -> None:
    token = await made(gateway, "read:orders", rate_per_second=0.5, burst=3)
    other = await made(gateway, "read:orders")
    told = [await gateway.http.get("/v1/tables/orders", headers=bearing(token["token"])) for _ in range(4)]
    assert [answer.status_code for answer in told] == [200, 200, 200, 429]
    assert told[3].json()["error"]["code"] == "rate_limited"
    assert 1 <= int(told[3].headers["retry-after"]) <= 2
    assert (await gateway.http.get("/v1/tables/orders", headers=bearing(other["token"]))).status_code == 200
    assert logged(gateway, "denied")[0]["outcome"] == "rate_limited"


async def test_the_settings_have_a_rate_for_all_but_admins(gateway: Running) -> None:
    gateway.gateway.access.settings = AccessSettings(rate_per_second=0.001, burst=2)
    token = await made(gateway, "read:orders")
    told = [(await gateway.http.get("/v1/tables", headers=bearing(token["token"]))).status_code for _ in range(3)]
    assert told == [200, 200, 429]
    for _ in range(20):
        assert (await gateway.http.get("/v1/tables")).status_code == 200


@pytest.fixture
async def two(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> AsyncIterator[tuple[Running, Running]]:
    """Two gateways of one installation."""
    async with running(memory_bus, lake, tmp_path) as one, running(memory_bus, lake, tmp_path) as other:
        await one.declare()
        await other.declare()
        yield one, other


async def test_gateways_agree(two: tuple[Running, Running]) -> None:
    one, other = two
    token = await made(one, "read:orders")
    headers = bearing(token["token"])
    assert (await other.http.get("/v1/tables/orders", headers=headers)).status_code == 200, "at once"
    await one.http.delete(f"/v1/tokens/{token['id']}")
    assert (await one.http.get("/v1/tables/orders", headers=headers)).status_code == 401, "at once where it was done"

    async def is_refused() -> bool:
        return (await other.http.get("/v1/tables/orders", headers=headers)).status_code == 401

    await eventually(is_refused)


async def test_what_names_files_is_for_admins(gateway: Running, lake: Lake, tmp_path: Path) -> None:
    """A table that cannot be loaded says which file is missing, to those who can put it back."""
    token = await made(gateway, "read:orders")
    Path(lake.table("main.orders").metadata_location.removeprefix("file://")).unlink()
    lake._loaded.clear()
    gateway.gateway.directory._tables.clear()
    for headers, is_told in ((bearing(TOKEN), True), (bearing(token["token"]), False)):
        for path in ("/v1/tables", "/v1/tables/orders"):
            answer = await gateway.http.get(path, headers=headers)
            assert "metadata_missing" in answer.text
            assert (str(tmp_path) in answer.text) == is_told, answer.text
