"""The settings that make an ack of NATS true: refused when one is missing, written by our own configuration."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from nats import connect as nats_connect

from frazil.bus import Message, nats_server, open_bus
from frazil.bus.nats_durability import check_stream
from frazil.errors import Denied, Misconfigured, Unavailable
from tests.contract.servers import NatsServer, running_nats
from tests.ports import free_port


async def check(nats: NatsServer, credentials: Mapping[str, str] | None = None) -> dict[str, str]:
    bus = await open_bus(nats.url, credentials=nats.credentials if credentials is None else credentials)
    try:
        return await bus.check()
    finally:
        await bus.close()


async def test_our_own_server_passes() -> None:
    with running_nats(max_file_store_bytes=3 << 30) as nats:
        facts = await check(nats)
        bus = await open_bus(nats.url, credentials=nats.credentials, max_bytes=1 << 20)
        await bus.create("main.orders")
        assert (await bus.check())["streams"] == "1"
        await bus.close()
    assert facts["sync"] == "always"
    assert facts["authorization"] == "required"
    assert facts["max_file_store"] == str(3 << 30)
    assert facts["max_payload"] == str((8 << 20) + (64 << 10))


def without_accounts(text: str) -> str:
    return text.partition("accounts {")[0]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda text: text.replace("sync_interval: always", "sync_interval: 2m"), "sync_interval: always"),
        (lambda text: text.replace("  sync_interval: always\n", ""), "sync_interval: always"),
        (lambda text: text.replace("max_payload: 8454144", "max_payload: 1048576"), "max_payload"),
        (lambda text: text + "no_auth_user: frazil\n", "no no_auth_user"),
        (without_accounts, "accounts with users"),
        (lambda text: text.replace("system_account: SYSTEM", ""), "system_account"),
    ],
    ids=["lazy-sync", "default-sync", "small-payload", "anybody-in", "no-accounts", "no-system-account"],
)
async def test_a_server_whose_acks_are_not_true_is_refused(edit: Callable[[str], str], words: str) -> None:
    with running_nats(edit=edit) as nats:
        with pytest.raises(Misconfigured) as error:
            await check(nats)
        assert words in error.value.hint
        assert nats.credentials["password"] not in f"{error.value.message} {error.value.hint}"


async def test_without_the_system_account_nobody_can_tell() -> None:
    with running_nats() as nats:
        only_user = {key: nats.credentials[key] for key in ("user", "password")}
        with pytest.raises(Misconfigured) as error:
            await check(nats, only_user)
        assert "system_user" in error.value.hint
        with pytest.raises(Misconfigured):
            await check(nats, {**nats.credentials, "system_password": "wrong"})


async def test_wrong_credentials_and_an_absent_server_are_told_apart() -> None:
    with running_nats() as nats:
        with pytest.raises(Denied):
            await open_bus(nats.url, credentials={**nats.credentials, "password": "wrong"})
        with pytest.raises(Denied):
            await open_bus(nats.url)
    with pytest.raises(Unavailable) as error:
        await asyncio.wait_for(open_bus(f"nats://127.0.0.1:{free_port()}"), 120)
    assert error.value.code == "bus_unavailable"


async def test_a_stream_changed_by_hand_is_refused() -> None:
    with running_nats() as nats:
        bus = await open_bus(nats.url, credentials=nats.credentials, max_bytes=1 << 20)
        await bus.create("main.orders")
        client = await nats_connect(nats.url, user=nats.credentials["user"], password=nats.credentials["password"])
        info = json.loads((await client.request("$JS.API.STREAM.INFO.frazil-main-orders", timeout=5)).data)
        changed = json.dumps({**info["config"], "discard": "old"}).encode()
        await client.request("$JS.API.STREAM.UPDATE.frazil-main-orders", changed, timeout=5)
        await client.close()
        with pytest.raises(Misconfigured) as error:
            await bus.check()
        await bus.close()
    assert "discard is new" in error.value.message


@pytest.mark.parametrize(
    "change",
    [
        {"storage": "memory"},
        {"retention": "workqueue"},
        {"max_bytes": -1},
        {"max_age": 60_000_000_000},
        {"max_msgs": 10},
        {"duplicate_window": 1_000_000_000},
        {"allow_atomic": False},
        {"allow_direct": False},
        {"persist_mode": "async"},
    ],
)
def test_each_setting_of_a_stream_counts(change: dict[str, object]) -> None:
    good = {
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_bytes": 1 << 20,
        "duplicate_window": 120_000_000_000,
        "allow_atomic": True,
        "allow_direct": True,
    }
    check_stream("main.orders", good)
    with pytest.raises(Misconfigured):
        check_stream("main.orders", good | change)


async def test_the_storage_of_the_server_is_shared_out_among_the_streams() -> None:
    with running_nats(max_file_store_bytes=3 << 20) as nats:
        bus = await open_bus(nats.url, credentials=nats.credentials, max_bytes=2 << 20)
        await bus.create("main.one")
        with pytest.raises(Unavailable) as error:
            await bus.create("main.two")
        await bus.close()
    assert error.value.code == "bus_full"


async def test_a_raised_limit_reaches_a_stream_that_exists() -> None:
    block = Message(b"x" * 400_000)
    with running_nats() as nats:
        small = await open_bus(nats.url, credentials=nats.credentials, max_bytes=1 << 20)
        stream = await small.create("main.orders")
        await stream.publish([block, block], message_id="a")
        with pytest.raises(Unavailable):
            await stream.publish([block], message_id="b")
        large = await open_bus(nats.url, credentials=nats.credentials, max_bytes=4 << 20)
        assert await (await large.open("main.orders")).publish([block], message_id="b") == 3
        again = await small.open("main.orders")
        assert (again.identity, await again.publish([block], message_id="c")) == (stream.identity, 4)
        await small.close()
        await large.close()


def test_the_configuration_keeps_its_secrets(tmp_path: Path) -> None:
    home = tmp_path / 'a "quoted" \\ directory'
    config = nats_server.write_config(home, 4222, max_file_store_bytes=1 << 30)
    words = nats_server.credentials(home)
    assert nats_server.credentials(home) == words
    assert nats_server.write_config(home, 4223, max_file_store_bytes=1 << 30) == config
    assert nats_server.credentials(home) == words
    assert len({words["password"], words["system_password"]}) == 2
    for path in (config, home / "nats.credentials"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    command = " ".join(nats_server.command(config))
    assert not [secret for secret in (words["password"], words["system_password"]) if secret in command]
    text = config.read_text()
    assert "127.0.0.1:4223" in text
    assert "http" not in text
    assert sorted(path.name for path in home.iterdir()) == ["nats.conf", "nats.credentials"]


async def test_a_server_starts_in_a_directory_with_an_odd_name(tmp_path: Path) -> None:
    nats = NatsServer(tmp_path / 'ice "cold" \\ données')
    nats.start()
    try:
        await check(nats)
        assert (nats.directory / "jetstream").is_dir()
        assert int(nats_server.pid_file(nats.directory).read_text()) == nats.pid
    finally:
        nats.kill()


def test_open_or_damaged_credentials_are_refused(tmp_path: Path) -> None:
    nats_server.write_config(tmp_path, 4222, max_file_store_bytes=1 << 30)
    path = tmp_path / "nats.credentials"
    path.chmod(0o644)
    with pytest.raises(Misconfigured) as error:
        nats_server.credentials(tmp_path)
    assert "chmod 600" in error.value.hint
    path.chmod(0o600)
    for damage in ("", "[]", '{"user": "x"}', "{"):
        path.write_text(damage)
        with pytest.raises(Misconfigured):
            nats_server.credentials(tmp_path)
    with pytest.raises(Misconfigured):
        nats_server.write_config(tmp_path, 4222, max_file_store_bytes=0)
