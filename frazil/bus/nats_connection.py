"""NATS connection: requests fail at once when an answer will not come.

The client library, left to reconnect by itself, buffers what is published meanwhile and sends it later, lets a request
wait for its full time-out after the connection is gone, and gives up for good on some errors of the server. A publisher
must know. So each connection here is a client of its own. When it is lost, every request in flight fails at once, and
the next connection is dialled for ever.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from frazil.bus.stream_rules import unknown
from frazil.errors import Denied, Unavailable

_log = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0
READY_SECONDS = 1.0
"""How long a request waits for a connection that is being made again."""
_DIAL_SECONDS = 2.0
_REDIAL_SECONDS = (0.02, 1.0)

Callback = Callable[[Msg], Awaitable[None]]


class NoResponder(Exception):
    """Nobody listens on this subject: no such stream, or JetStream is not up."""


class ApiError(Exception):
    """JetStream refused the request; nothing was changed."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code
        self.description = description


@dataclass
class _Expected:
    """A request in flight: its replies so far, and when they are enough."""

    enough: Callable[[Msg], bool]
    done: asyncio.Future[None]
    replies: list[Msg] = field(default_factory=list)


class NatsConnection:
    """A connection that is made again whenever it is lost. Its listeners are called after each time."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._servers = [server if "://" in server else f"nats://{server}" for server in url.split(",")]
        self._user = user
        self._password = password
        self._client = Client()
        self._inbox = self._client.new_inbox()
        self._in_flight: dict[str, _Expected] = {}
        self._tokens = itertools.count()
        self._callbacks: dict[str, Callback] = {f"{self._inbox}.*": self._on_reply}
        self._subscriptions: dict[str, tuple[Client, Subscription]] = {}
        self._connected = asyncio.Event()
        self._redialling: asyncio.Task[None] | None = None
        self._closing = False
        self.listeners: list[Callable[[], None]] = []

    @classmethod
    async def connect(cls, url: str, *, user: str = "", password: str = "") -> NatsConnection:
        """Connect. Raises `Denied` for wrong credentials, `Unavailable` when no server answers."""
        connection = cls(url, user, password)
        await connection._dial()
        return connection

    @property
    def max_payload(self) -> int:
        return int(self._client.max_payload)

    @property
    def server_version(self) -> tuple[int, int, int]:
        version = self._client.connected_server_version
        return (int(version.major), int(version.minor), int(version.patch))

    async def close(self) -> None:
        self._closing = True
        if self._redialling is not None:
            self._redialling.cancel()
            await asyncio.wait({self._redialling})
        await self._client.close()

    async def subscribe(self, subject: str, callback: Callback) -> None:
        """Subscribe, across reconnects. Messages that are sent while there is no connection are missed."""
        self._callbacks[subject] = callback
        await self._ready(subject)
        try:
            await self._listen(self._client, subject)
            await self._client.flush(timeout=int(REQUEST_SECONDS))
        except (OSError, nats.errors.Error) as error:
            raise unknown(subject, _error_text(error)) from error

    async def unsubscribe(self, subject: str) -> None:
        self._callbacks.pop(subject, None)
        client, subscription = self._subscriptions.pop(subject, (None, None))
        if subscription is not None and client is self._client and self._connected.is_set():
            try:
                await subscription.unsubscribe()
            except (OSError, nats.errors.Error) as error:
                raise unknown(subject, _error_text(error)) from error

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Msg:
        """Send a request; the one reply."""
        return (await self.collect(subject, payload, lambda reply: True, headers=headers, seconds=seconds))[0]

    async def api(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the JetStream API. Raises `ApiError` when it is refused."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            reply = await self.request(f"$JS.API.{verb}", payload)
        except NoResponder as error:
            raise unknown(verb, "JetStream is not up on this server") from error
        return answer(reply)

    async def collect(
        self,
        subject: str,
        payload: bytes,
        enough: Callable[[Msg], bool],
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> list[Msg]:
        """Send a request; all replies up to the one that is `enough`."""
        await self._ready(subject)
        token = str(next(self._tokens))
        expected = _Expected(enough, asyncio.get_running_loop().create_future())
        self._in_flight[token] = expected
        try:
            async with asyncio.timeout(seconds):
                await self._client.publish(
                    subject, payload, reply=f"{self._inbox}.{token}", headers=dict(headers) if headers else None
                )
                await expected.done
        except TimeoutError as error:
            raise unknown(subject, f"nothing within {seconds:g} s") from error
        except (OSError, nats.errors.Error) as error:
            raise unknown(subject, _error_text(error)) from error
        finally:
            del self._in_flight[token]
        if _nobody_listens(expected.replies[-1]):
            raise NoResponder(subject)
        return expected.replies

    async def send(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that has no reply."""
        await self._ready(subject)
        try:
            await self._client.publish(subject, payload, headers=dict(headers))
        except (OSError, nats.errors.Error) as error:
            raise unknown(subject, _error_text(error)) from error

    async def _ready(self, subject: str) -> None:
        if self._closing:
            raise unknown(subject, "the bus was closed")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._connected.wait()
        except TimeoutError as error:
            raise unknown(subject, "there is no connection") from error

    async def _dial(self) -> None:
        client = Client()
        try:
            async with asyncio.timeout(_DIAL_SECONDS * len(self._servers)):
                await self._dial_any(client)
        except BaseException as error:
            # Also where the caller was cancelled: nobody else knows of this client.
            await client.close()
            if not isinstance(error, TimeoutError | OSError | nats.errors.Error):
                raise
            if "authorization" in str(error).lower():
                raise Denied(
                    "the bus refused the credentials",
                    hint="check the user and password of the bus, and that this is the right server",
                ) from error
            raise unknown("a connection", _error_text(error)) from error
        self._client = client
        self._connected.set()

    async def _dial_any(self, client: Client) -> None:
        async def on_closed() -> None:
            await self._on_closed(client)

        await client.connect(
            self._servers,
            user=self._user or None,
            password=self._password or None,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=int(_DIAL_SECONDS),
            # Without this the library would hold back up to 2 MB of what is published while it has no connection.
            pending_size=0,
            ping_interval=10,
            max_outstanding_pings=2,
            error_cb=self._on_error,
            closed_cb=on_closed,
        )
        for subject in list(self._callbacks):
            await self._listen(client, subject)
        await client.flush(timeout=int(_DIAL_SECONDS))

    async def _listen(self, client: Client, subject: str) -> None:
        if self._subscriptions.get(subject, (None, None))[0] is client:
            return  # what a call that failed half way had done already
        subscription = await client.subscribe(
            subject, cb=self._callbacks[subject], pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._subscriptions[subject] = (client, subscription)

    async def _redial(self) -> None:
        pause, longest = _REDIAL_SECONDS
        while not self._closing:
            try:
                await self._dial()
            except Exception as error:
                # Whatever the library raises: without this task there would never be a connection again.
                if not isinstance(error, Denied | Unavailable):
                    _log.exception("bus connection failed")
                _log.debug("bus connection failed: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)
            else:
                for listener in self.listeners:
                    listener()
                return

    async def _on_closed(self, client: Client) -> None:
        if client is not self._client:
            return
        self._connected.clear()
        for expected in self._in_flight.values():
            if not expected.done.done():
                expected.done.set_exception(unknown("a request", "the connection was lost"))
        if not self._closing:
            _log.warning("bus connection lost")
            self._redialling = asyncio.create_task(self._redial())

    async def _on_reply(self, reply: Msg) -> None:
        expected = self._in_flight.get(reply.subject[len(self._inbox) + 1 :])
        if expected is None or expected.done.done():
            return
        expected.replies.append(reply)
        if _nobody_listens(reply) or expected.enough(reply):
            expected.done.set_result(None)

    async def _on_error(self, error: Exception) -> None:
        _log.debug("nats client failed: %s", _error_text(error))


def answer(reply: Msg) -> dict[str, Any]:
    """The JSON of a JetStream reply. Raises `ApiError` when it is a refusal."""
    try:
        body = json.loads(reply.data)
    except ValueError as error:
        raise unknown(reply.subject, "an answer that is not JSON") from error
    if refusal := body.get("error"):
        raise ApiError(int(refusal.get("err_code", 0)), str(refusal.get("description", "")))
    return dict(body)


def _nobody_listens(reply: Msg) -> bool:
    headers = reply.headers or {}
    return not reply.data and headers.get("Status") == "503" and "Nats-Sequence" not in headers


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
