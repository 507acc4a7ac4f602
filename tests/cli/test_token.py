"""`frazil token` against a real gateway: the secret on standard output, words on standard error."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.access import AccessControl, id_of
from frazil.bus.memory import MemoryBus
from frazil.cli.admin.token import parse_grant, seconds_of
from frazil.client import Client
from frazil.errors import Denied, InvalidInput, NotFound
from frazil.gateway.http import listen, serve
from frazil.lake.catalog import Lake
from frazil.runtime import assemble_gateway
from frazil.settings import IngestSettings
from frazil.storage import Journal
from tests.cli.conftest import Run

ADMIN_TOKEN = "frz_" + "a" * 43


@pytest.fixture
def url(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a gateway that runs in a thread, with the table `notes`; the command line finds it."""
    listening = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serving() -> None:
        access = AccessControl(registry=lake.registry, admin_token=ADMIN_TOKEN, audit_folder=tmp_path / "audit")
        gateway = assemble_gateway(
            bus=MemoryBus(max_bytes=1 << 20),
            lake=lake,
            journal=Journal(tmp_path / "journal"),
            access=access,
            ingest=IngestSettings(),
        )
        await serve(gateway, listening, stop=stop, drain_seconds=5, on_ready=ready.set)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serving()))
    thread.start()
    try:
        assert ready.wait(30)
        monkeypatch.setenv("FRAZIL_URL", address)
        monkeypatch.setenv("FRAZIL_TOKEN", ADMIN_TOKEN)
        with Client(address, ADMIN_TOKEN) as client:
            client.create_table("notes", {"email": "string", "phone": "string", "team": "string"})
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
        loop.close()


def described(url: str, secret: str) -> int:
    return httpx.get(f"{url}/v1/tables/notes", headers={"authorization": f"Bearer {secret}"}, timeout=30).status_code


def test_the_whole_life(run: Run, url: str) -> None:
    made = run("token", "create", "reports", "--grant", "sql", "--grant", "read:notes", "--expires", "30d")
    assert made.code == 0, made.err
    secret = made.out.strip()
    token_id = id_of(secret)
    assert token_id is not None, "nothing but the secret is on standard output"
    assert token_id in made.err and "sql, read:notes" in made.err and secret not in made.err
    assert described(url, secret) == 200
    assert token_id in run("token", "list").out
    shown = run("token", "show", f"frz_{token_id}")
    assert "reports" in shown.out and "read:notes" in shown.out and secret[17:] not in shown.out
    rotated = run("token", "rotate", token_id, "--grace", "1h")
    assert id_of(rotated.out.strip()) == token_id and "works until" in rotated.err
    assert described(url, secret) == described(url, rotated.out.strip()) == 200
    assert "has ended" in run("token", "rotate", token_id).err
    assert described(url, secret) == 401
    assert run("token", "revoke", token_id).out == f"token {token_id} (reports) is revoked\n"
    assert token_id not in run("token", "list").out
    assert token_id in run("token", "list", "--all").out


def test_for_programs(run: Run, url: str) -> None:
    made = json.loads(
        run("token", "create", "[red]x[/]", "--grant", "ingest:notes", "--rate", "5", "--burst", "9", "--json").out
    )
    assert described(url, made["token"]) == 200
    assert (made["rate_per_second"], made["burst"], made["name"]) == (5.0, 9, "[red]x[/]")
    assert "[red]x[/]" in run("token", "list").out
    (listed,) = json.loads(run("token", "list", "--json").out)["tokens"]
    shown = json.loads(run("token", "show", made["id"], "--json").out)
    # Written now and then, perhaps just between the two.
    assert {**listed, "last_used_at": None} == {**shown, "last_used_at": None}
    assert "token" not in listed
    assert json.loads(run("token", "rotate", made["id"], "--json").out)["id"] == made["id"]
    assert json.loads(run("token", "revoke", made["id"], "--json").out)["state"] == "revoked"


def test_masks(run: Run, url: str) -> None:
    made = json.loads(run("token", "create", "a", "--grant", "read:notes mask=email,phone:hash", "--json").out)
    assert made["grants"] == [{"scope": "read:notes", "mask": {"email": "null", "phone": "hash"}}]
    made = json.loads(
        run("token", "create", "a", "--grant", "sql", "--grant", "read:notes", "--mask", "email:redact", "--json").out
    )
    assert made["grants"][1] == {"scope": "read:notes", "mask": {"email": "redact"}}
    assert "mask=email:redact" in run("token", "show", made["id"]).out
    made = json.loads(run("token", "create", "a", "--grant", "read:notes mask=email:hash(people)", "--json").out)
    assert made["grants"] == [{"scope": "read:notes", "mask": {"email": "hash(people)"}}]
    assert "mask=email:hash(people)" in run("token", "show", made["id"]).out


CANNOT_BE = [
    (["create", "a", "--grant", "write:notes"], "is not a valid scope"),
    (["create", "a", "--grant", "read:notes mask=nothing"], "no column 'nothing' to mask"),
    (["create", "a", "--grant", "read:absent mask=email"], "there is no table 'absent'"),
    (["create", "a", "--grant", "read:notes wher=1"], "is not a grant"),
    (["create", "a", "--grant", "sql", "--where", "true"], "exactly one read grant"),
    (["create", "a", "--grant", "read:a", "--grant", "read:b", "--mask", "x"], "exactly one read grant"),
    (["create", "a", "--grant", "read:notes mask=email", "--mask", "phone"], "has a `mask` already"),
    (["create", "a", "--grant", "sql", "--expires", "soon"], "not a duration"),
    (["rotate", "0123456789ab", "--grace", "-1h"], "not a duration"),
    (["show", "0123456789ab"], "no token has this id"),
    (["revoke", "x/../../tables/notes"], "nothing at this address"),
]


def test_what_cannot_be(run: Run, url: str) -> None:
    for arguments, words in CANNOT_BE:
        ran = run("token", *arguments)
        assert ran.code in (1, 2), ran
        assert words in ran.err, arguments
        assert ran.out == ""
    assert json.loads(run("token", "list", "--json").out) == {"tokens": []}
    assert described(url, ADMIN_TOKEN) == 200, "the table is still there"


def test_a_grant_is_needed(run: Run, url: str) -> None:
    assert run("token", "create", "a").code == 2


def test_only_admins(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = run("token", "create", "a", "--grant", "sql").out.strip()
    monkeypatch.setenv("FRAZIL_TOKEN", secret)
    for arguments in (["list"], ["show", "x"], ["revoke", "x"], ["rotate", "x"], ["create", "b", "--grant", "admin"]):
        ran = run("token", *arguments)
        assert ran.code == 1
        assert "scope admin" in ran.err


def test_the_client(url: str) -> None:
    with Client(url, ADMIN_TOKEN) as client:
        tokens = client.tokens
        made = tokens.create("a", ["sql", {"scope": "read:notes", "mask": ["email"]}], expires_in_s=60)
        assert tokens.show(made["token"])["id"] == made["id"], "a whole token is not sent in a path"
        assert [entry["id"] for entry in tokens.list()] == [made["id"]]
        rotated = tokens.rotate(made["id"], grace_s=0)
        tokens.revoke(made["id"])
        with pytest.raises(NotFound):
            tokens.show("absent")
    with Client(url, rotated["token"]) as client, pytest.raises(Denied):
        client.tokens.list()


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("sql", {"scope": "sql"}),
        ("read:notes", {"scope": "read:notes"}),
        ("read:notes where=\"team = 'north'\"", {"scope": "read:notes", "where": "team = 'north'"}),
        ("read:notes where='a = b' mask=x", {"scope": "read:notes", "where": "a = b", "mask": {"x": "null"}}),
        ("read:notes where=\"team = 'north'", None),
        ("read:notes mask=x mask=y", None),
        ("read:notes mask", None),
        ("", None),
    ],
)
def test_grants_in_words(text: str, grant: dict[str, Any] | None) -> None:
    if grant is None:
        with pytest.raises(InvalidInput):
            parse_grant(text)
    else:
        assert parse_grant(text) == grant


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("30d", 2592000)])
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "-5s", "5y", "1e9", "5 s x", "١d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInput):
        seconds_of(text)
