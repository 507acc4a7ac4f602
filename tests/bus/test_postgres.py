"""The Postgres bus: its tables, the window of message ids, and the settings of the server that it checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from frazil.bus import Message
from frazil.bus.postgres import PostgresBus
from frazil.errors import Denied, Misconfigured
from tests.contract.servers import PostgresServer, running_postgres

SHORT = 60.0
"""Longer than any test takes: time passes when a test says so."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


async def connect(server: PostgresServer) -> PostgresBus:
    return await PostgresBus.connect(server.url, credentials=server.credentials, max_bytes=64 << 20)


@pytest.fixture
async def bus(server: PostgresServer) -> AsyncIterator[PostgresBus]:
    bus = await connect(server)
    yield bus
    for name in await bus.names():
        await bus.delete(name)
    await bus.close()


async def pass_time(server: PostgresServer, seconds: float) -> None:
    """All that the server has noted happened so much earlier."""
    admin = await asyncpg.connect(server.url, user="frazil", password=server.credentials["password"])
    await admin.execute("update frazil_bus.published set at = at - make_interval(secs => $1)", seconds)
    await admin.close()


async def test_message_ids_are_forgotten_after_the_window(server: PostgresServer, bus: PostgresBus) -> None:
    short = await PostgresBus.connect(
        server.url, credentials=server.credentials, max_bytes=1 << 20, duplicate_window_seconds=SHORT
    )
    stream = await short.create("main.short")
    assert await stream.publish([Message(b"a")], message_id="one") == 1
    assert await stream.publish([Message(b"a")], message_id="one") == 1
    await pass_time(server, SHORT)
    assert await stream.publish([Message(b"a")], message_id="one") == 2
    await short.close()


async def test_the_tables_are_made_once_by_many_at_a_time(server: PostgresServer, bus: PostgresBus) -> None:
    admin = await asyncpg.connect(server.url, user="frazil", password=server.credentials["password"])
    await admin.execute("drop schema frazil_bus cascade")
    buses = await asyncio.gather(*(connect(server) for _ in range(6)))
    await buses[0].create("main.first")
    assert await buses[5].names() == ["main.first"]
    for other in buses:
        await other.close()
    await admin.close()


async def test_the_settings_of_the_server_are_checked(bus: PostgresBus) -> None:
    facts = await bus.check()
    assert (facts["sync"], facts["fsync"], facts["full_page_writes"]) == ("on", "on", "on")


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_whose_commits_are_not_durable_is_refused(setting: str) -> None:
    with running_postgres(options={setting: "off"}) as lazy:
        bus = await connect(lazy)
        with pytest.raises(Misconfigured) as error:
            await bus.check()
        await bus.close()
    assert setting in error.value.message


async def test_commits_are_synchronous_even_where_the_server_is_lazy_by_default() -> None:
    with running_postgres(options={"synchronous_commit": "off"}) as lazy:
        bus = await connect(lazy)
        assert (await bus.check())["sync"] == "on"
        await bus.close()


async def test_unlogged_tables_are_refused(server: PostgresServer, bus: PostgresBus) -> None:
    admin = await asyncpg.connect(server.url, user="frazil", password=server.credentials["password"])
    await admin.execute("alter table frazil_bus.published set unlogged")
    with pytest.raises(Misconfigured):
        await bus.check()
    await admin.execute("alter table frazil_bus.published set logged")
    await admin.close()
    await bus.check()


async def test_a_wrong_password_is_denied_and_not_repeated(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Denied) as error:
        await PostgresBus.connect(server.url, credentials={"user": "frazil", "password": "hunter2"}, max_bytes=1)
    assert "hunter2" not in f"{error.value.message} {error.value.hint}"
    monkeypatch.setenv("PGPASSWORD", server.credentials["password"])
    bus = await PostgresBus.connect(server.url, credentials={"user": "frazil"}, max_bytes=1)
    await bus.close()
