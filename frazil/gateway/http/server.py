"""HTTP server: the application on a port, bound before anything else starts, drained before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn

from frazil.errors import FrazilError, Misconfigured
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.app import create_app
from frazil.gateway.http.connection import GatewayConnection
from frazil.gateway.http.connection_table import ConnectionTable
from frazil.gateway.http.open_files import RESERVED_FILES, allow_open_files, connections_within
from frazil.gateway.http.uploads import forget_left_uploads
from frazil.gateway.malloc import return_freed_memory
from frazil.gateway.settings import ServerSettings

log = logging.getLogger(__name__)

_BACKLOG = 1024
_CHECK_SECONDS = 1.0


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or `Misconfigured` that says why not. Port 0 picks a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. An answer is two writes, and without this the second waits 40 ms for the first one's ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise Misconfigured(
                f"port {port} of {host} is taken",
                code="port_taken",
                hint="stop what uses it, or choose another with --port (server.port)",
            ) from error
        raise Misconfigured(
            f"cannot listen on {host}:{port}: {error.strerror}",
            code="cannot_listen",
            hint="check server.host and server.port",
        ) from error
    listening.setblocking(False)
    return listening


_TIDY_SECONDS = 600.0


class _Server(uvicorn.Server):
    """Leaves the signals to `serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _tidy(gateway: Gateway) -> None:
    while True:
        with contextlib.suppress(FrazilError, OSError):  # what could not be done now is done the next time
            await asyncio.to_thread(forget_left_uploads, gateway)
        await asyncio.sleep(_TIDY_SECONDS)


def _open_table(limits: ServerSettings) -> ConnectionTable[GatewayConnection]:
    files = allow_open_files(limits.max_connections + RESERVED_FILES)
    connections = connections_within(files, limits.max_connections)
    if connections < limits.max_connections:
        log.warning(
            "server.max_connections is %d, but the limit of %d open files leaves room for %d: raise it (ulimit -n)",
            limits.max_connections,
            files,
            connections,
        )
    return ConnectionTable(connections, limits.max_connections_per_address)


async def _check_connections(table: ConnectionTable[GatewayConnection], limits: ServerSettings) -> None:
    """Look for slow connections, often enough to end each within a quarter more than its time.

    After a pause of the whole process the event loop reads what came meanwhile before it comes here.
    """
    seconds = min(_CHECK_SECONDS, limits.header_seconds / 4, limits.body_seconds / 4, limits.answer_seconds / 4)
    while True:
        await asyncio.sleep(seconds)
        table.now = time.monotonic()
        for connection in table.connections():
            try:
                connection.check()
            except Exception:  # one connection must not cost the others their limits
                log.exception("connection check failed, connection closed")
                connection.transport.abort()


async def serve(
    gateway: Gateway,
    listening: socket.socket,
    *,
    limits: ServerSettings | None = None,
    stop: asyncio.Event | None = None,
    drain_seconds: float = 15.0,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Start the gateway and serve it until `stop` is set, or without one until SIGTERM or SIGINT.

    Stopping means: take no new connections, answer the requests in flight, write what is queued, return.
    """
    return_freed_memory()
    stopping = stop or _stopped_by_signals()
    limits = limits or ServerSettings()
    table = _open_table(limits)
    config = uvicorn.Config(
        create_app(gateway),
        http=cast(Any, partial(GatewayConnection, limits=limits, table=table, metrics=gateway.metrics)),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        # The audit log names who connected: a header of the caller must not change that.
        proxy_headers=False,
        timeout_keep_alive=cast(int, limits.keep_alive_seconds),
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    server = _Server(config)
    await gateway.start()
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="http")
    waiting = asyncio.create_task(stopping.wait(), name="wait for the stop")
    checking = asyncio.create_task(_check_connections(table, limits), name="check the connections")
    tidying = asyncio.create_task(_tidy(gateway), name="forget what was left")
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if on_ready is not None and not serving.done():
            on_ready()
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        gateway.drain()
        server.should_exit = True
        await serving
    finally:
        for task in (waiting, serving, checking, tidying):
            task.cancel()
        for connection in table.connections():  # of clients that did not take their answer in time
            connection.transport.abort()
        await gateway.close()


def _stopped_by_signals() -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping
