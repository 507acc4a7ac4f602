"""What is written in one turn of the event loop leaves in one piece, in order, and whole when the connection closes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from frazil.gateway.http.single_write import SingleWriteTransport


class Wire:
    """What a transport was told."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.said.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any) -> Any:
        return f"the {name}"


@pytest.fixture
def wire() -> Wire:
    return Wire()


def gathered(wire: Wire) -> asyncio.Transport:
    return SingleWriteTransport(cast(asyncio.Transport, wire), asyncio.get_running_loop())


async def test_head_and_body_leave_together(wire: Wire) -> None:
    transport = gathered(wire)
    for turn in range(3):
        transport.write(b"head")
        transport.write(b"body %d" % turn)
        assert len(wire.said) == turn
        await asyncio.sleep(0)
    assert wire.said == [b"headbody 0", b"headbody 1", b"headbody 2"]


async def test_what_is_large_does_not_wait(wire: Wire) -> None:
    transport = gathered(wire)
    transport.write(b"a")
    transport.write(b"b" * 1_000_000)
    assert wire.said == [b"a" + b"b" * 1_000_000]
    transport.write(b"c")
    await asyncio.sleep(0)
    assert wire.said[1:] == [b"c"]


async def test_a_close_comes_after_what_was_written(wire: Wire) -> None:
    transport = gathered(wire)
    transport.write(b"all of it")
    transport.close()
    assert (wire.said, wire.closed) == ([b"all of it"], True)
    await asyncio.sleep(0)
    assert wire.said == [b"all of it"]


async def test_a_lost_connection_is_not_written_to(wire: Wire) -> None:
    transport = gathered(wire)
    transport.write(b"too late")
    wire.closed = True
    await asyncio.sleep(0)
    assert wire.said == []


async def test_everything_else_is_the_transport_s(wire: Wire) -> None:
    assert gathered(wire).get_extra_info("peername") == "the peername"
