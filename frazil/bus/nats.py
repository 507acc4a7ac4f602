"""NATS bus: one JetStream stream per table.

A stream's identity is made up at its creation and is part of its subject, so that a publisher that still holds a handle
to a deleted stream cannot write into the one that took its name. The server republishes the head of each stored message
to a second subject; that is what `wait` listens to, at no cost when nobody does.

A publish of several messages is an atomic batch: the server stages it in a file, syncs that, copies it into the stream,
syncs again and acknowledges. After a crash or a power cut in between it completes the batch from the staged file, so
that the batch is there as a whole or not at all. Servers before 2.15.1 are not known to sync the staged file, and
`check` refuses them. Only the last message of a batch carries the message id: where it is, all of the batch is.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from nats.aio.msg import Msg

from frazil.bus import Delivery, HeadMoved, Message, StreamMissing
from frazil.bus.head_watch import HeadWatch
from frazil.bus.nats_connection import REQUEST_SECONDS, ApiError, NatsConnection, NoResponder, answer
from frazil.bus.stream_rules import (
    DUPLICATE_WINDOW_SECONDS,
    check_name,
    check_publish,
    full,
    gap,
    lost_end,
    replaced,
    unknown,
)
from frazil.errors import BusGap, Conflict, FrazilError, TooLarge

_PREFIX = "frazil-"
_IDENTITY = "frazil-identity"
_READ_BYTES = 16 << 20
_READ_TRIES = 5
_READS_AT_A_TIME = 2
_BATCHES_AT_A_TIME = 16
LOOK_AGAIN_SECONDS = 5.0
_OWN_HEADER_BYTES = 1024
_SECONDS_PER_BYTE = 1 / (2 << 20)

_NAME_TAKEN = (10058, 10065)
_NO_STREAM = 10059
_NO_MESSAGE = 10037
_WRONG_LAST = (10071, 10164)
_DUPLICATE_IN_BATCH = 10201
_WRONG_LAST_ID = 10070
_NO_ROOM = (10002, 10023, 10028, 10047)
_STORE_FAILED = 10077


class NatsBus:
    """`EventBus` on JetStream. Reads have a connection of their own: a large one would delay the acks."""

    def __init__(
        self, url: str, credentials: Mapping[str, str], max_bytes: int, writer: NatsConnection, reader: NatsConnection
    ) -> None:
        self.url = url
        self.credentials = credentials
        self.writer = writer
        self.reader = reader
        self.reading = asyncio.Semaphore(_READS_AT_A_TIME)
        self._max_bytes = max_bytes
        self._streams: dict[str, NatsStream] = {}

    @classmethod
    async def connect(cls, url: str, *, credentials: Mapping[str, str], max_bytes: int) -> NatsBus:
        """Connect to `nats://host:port` (several, separated by commas, for a cluster).

        `credentials` has `user` and `password`, and for `check` also `system_user` and `system_password`.
        """
        user, password = credentials.get("user", ""), credentials.get("password", "")
        writer = await NatsConnection.connect(url, user=user, password=password)
        try:
            reader = await NatsConnection.connect(url, user=user, password=password)
        except BaseException:
            await writer.close()
            raise
        return cls(url, credentials, max_bytes, writer, reader)

    async def create(self, name: str, *, first_sequence: int = 1) -> NatsStream:
        check_name(name)
        identity = uuid.uuid4().hex
        try:
            await self.writer.api(
                f"STREAM.CREATE.{_stream_name(name)}", _config(name, identity, first_sequence, self._max_bytes)
            )
        except ApiError as error:
            if error.code in _NAME_TAKEN:
                raise Conflict(
                    f"the bus has a stream for {name} already", hint="open it, or delete it first if it may be lost"
                ) from error
            if error.code in _NO_ROOM:
                raise full(name, f"no room for another stream: {error.description}") from error
            raise unknown(f"the creation of the stream of {name}", str(error)) from error
        return await self._keep(NatsStream(self, name, identity))

    async def open(self, name: str) -> NatsStream:
        check_name(name)
        info = await self.info(name)
        identity = identity_of(info)
        if int(info["config"]["max_bytes"]) < self._max_bytes:
            await self._raise_limit(name, info["config"])
        known = self._streams.get(name)
        if known is not None and known.identity == identity:
            return known
        return await self._keep(NatsStream(self, name, identity))

    async def delete(self, name: str) -> None:
        check_name(name)
        if known := self._streams.pop(name, None):
            await known.forget()
        try:
            await self.writer.api(f"STREAM.DELETE.{_stream_name(name)}")
        except ApiError as error:
            if error.code != _NO_STREAM:
                raise unknown(f"the deletion of the stream of {name}", str(error)) from error

    async def names(self) -> list[str]:
        found: list[str] = []
        offset = 0
        while True:
            page = await self.writer.api("STREAM.NAMES", {"offset": offset})
            streams = page.get("streams") or []
            found += streams
            offset += len(streams)
            if not streams or offset >= int(page["total"]):
                return sorted(_table_name(stream) for stream in found if stream.startswith(_PREFIX))

    async def check(self) -> dict[str, str]:
        from frazil.bus.nats_durability import check_server, check_stream

        facts = await check_server(self.url, self.credentials, self.writer)
        names = await self.names()
        for name in names:
            check_stream(name, (await self.info(name))["config"])
        return facts | {"streams": str(len(names))}

    async def close(self) -> None:
        await self.writer.close()
        await self.reader.close()

    async def info(self, name: str) -> dict[str, Any]:
        """Configuration and state of a stream, from its leader."""
        try:
            return await self.writer.api(f"STREAM.INFO.{_stream_name(name)}")
        except ApiError as error:
            if error.code == _NO_STREAM:
                raise StreamMissing(
                    f"the bus has no stream for {name}",
                    hint=f"check that this is the right bus; `frazil repair bus {name}` makes a new stream",
                ) from error
            raise unknown(f"a look at the stream of {name}", str(error)) from error

    async def _raise_limit(self, name: str, config: Mapping[str, Any]) -> None:
        """The setting was raised since the stream was made. It is never lowered here: the stream may be fuller."""
        try:
            await self.writer.api(f"STREAM.UPDATE.{_stream_name(name)}", {**config, "max_bytes": self._max_bytes})
        except ApiError as error:
            raise full(name, f"its limit cannot be raised: {error.description}") from error

    async def _keep(self, stream: NatsStream) -> NatsStream:
        """One handle per stream, so that there is one subscription for all waiters."""
        if known := self._streams.get(stream.name):
            await known.forget()
        self._streams[stream.name] = stream
        return stream


class NatsStream:
    """`Stream` on one JetStream stream."""

    def __init__(self, bus: NatsBus, name: str, identity: str) -> None:
        self._bus = bus
        self._name = name
        self._identity = identity
        self._stream = _stream_name(name)
        self._subject = _subject(name, identity)
        self._batches = asyncio.Semaphore(_BATCHES_AT_A_TIME)
        self._head_watch = HeadWatch(LOOK_AGAIN_SECONDS)
        self._watching: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def identity(self) -> str:
        return self._identity

    async def publish(self, messages: Sequence[Message], *, message_id: str, expected_last: int | None = None) -> int:
        check_publish(messages, message_id)
        self._check_payload(messages)
        try:
            if len(messages) == 1:
                return await self._publish_one(messages[0], message_id, expected_last)
            async with self._batches:
                return await self._publish_batch(messages, message_id, expected_last)
        except NoResponder as error:
            await self._info()
            raise unknown("a publish", "the stream is not up yet") from error
        except ApiError as error:
            return await self._refused(error, message_id, expected_last)

    async def _publish_one(self, message: Message, message_id: str, expected_last: int | None) -> int:
        headers = {**message.headers, "Nats-Msg-Id": message_id, **_expecting(expected_last)}
        seconds = REQUEST_SECONDS + len(message.body) * _SECONDS_PER_BYTE
        reply = await self._bus.writer.request(self._subject, message.body, headers=headers, seconds=seconds)
        return int(answer(reply)["seq"])

    async def _publish_batch(self, messages: Sequence[Message], message_id: str, expected_last: int | None) -> int:
        batch = uuid.uuid4().hex
        seconds = REQUEST_SECONDS + sum(len(message.body) for message in messages) * _SECONDS_PER_BYTE
        last = len(messages)
        for number, message in enumerate(messages, 1):
            headers = {**message.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number == 1:
                # A refusal of the first message has the true reason; later ones say that the batch is incomplete.
                headers |= _expecting(expected_last)
                started = await self._bus.writer.request(self._subject, message.body, headers=headers)
                if started.data:
                    answer(started)
            elif number < last:
                await self._bus.writer.send(self._subject, message.body, headers)
            else:
                headers |= {"Nats-Batch-Commit": "1", "Nats-Msg-Id": message_id}
                ended = await self._bus.writer.request(self._subject, message.body, headers=headers, seconds=seconds)
                return int(answer(ended)["seq"])
        raise AssertionError("a batch has a last message")

    def _check_payload(self, messages: Sequence[Message]) -> None:
        """The server would cut the connection at a larger message."""
        limit = self._bus.writer.max_payload
        for message in messages:
            size = len(message.body) + sum(len(key) + len(value) + 4 for key, value in message.headers.items())
            if size + _OWN_HEADER_BYTES > limit:
                raise TooLarge(
                    f"a message of {size} bytes, this server takes {limit}",
                    hint="set max_payload of the NATS server to 8 MB and 64 KB, as frazil's own server has it",
                )

    async def _refused(self, error: ApiError, message_id: str, expected_last: int | None) -> int:
        """The first answer if this message id is in the stream already, otherwise the reason as an error."""
        if error.code == _DUPLICATE_IN_BATCH or error.code in _WRONG_LAST:
            first_answer = await self._find(message_id)
            if first_answer is not None:
                return first_answer
        if error.code in _WRONG_LAST:
            raise HeadMoved(
                f"the stream of {self._name} is not at {expected_last}: {error.description}",
                hint="look at the head and publish again",
            ) from error
        if error.code in _NO_ROOM or (error.code == _STORE_FAILED and "maximum" in error.description):
            raise full(self._name, error.description) from error
        raise unknown("a publish", str(error)) from error

    async def _find(self, message_id: str) -> int | None:
        """The sequence of this message id inside the duplicate window.

        JetStream looks for duplicates before it compares the last message id: with one that cannot be, a known id is
        answered with its sequence and an unknown one is refused, and nothing is ever written.
        """
        headers = {"Nats-Msg-Id": message_id, "Nats-Expected-Last-Msg-Id": uuid.uuid4().hex}
        try:
            return int(answer(await self._bus.writer.request(self._subject, headers=headers))["seq"])
        except ApiError as error:
            if error.code == _WRONG_LAST_ID:
                return None
            raise unknown("a look for a message id", str(error)) from error

    async def read(self, first: int, *, max_messages: int = 256, max_bytes: int = _READ_BYTES) -> list[Delivery]:
        wanted = {"seq": max(first, 1), "batch": max(max_messages, 1), "max_bytes": min(max(max_bytes, 1), _READ_BYTES)}
        for _ in range(_READ_TRIES):
            found = await self._read_once(first, json.dumps(wanted).encode())
            if found or await self._is_end(first):
                return found
        raise unknown("a read", "a replica of the stream has not caught up")

    async def _read_once(self, first: int, wanted: bytes) -> list[Delivery]:
        async with self._bus.reading:
            try:
                replies = await self._bus.reader.collect(
                    f"$JS.API.DIRECT.GET.{self._stream}", wanted, _ends_a_read, seconds=30.0
                )
            except NoResponder as error:
                await self._info()
                raise unknown("a read", "the stream is not up yet") from error
        found = [self._delivery(reply) for reply in replies if not _ends_a_read(reply)]
        for index, delivery in enumerate(found):
            if delivery.sequence != first + index:
                raise await self._confirm_gap(first + index, delivery.sequence)
        return found

    def _delivery(self, reply: Msg) -> Delivery:
        headers = reply.headers or {}
        if headers.get("Nats-Subject") != self._subject:
            raise replaced(self._name, self._identity, headers.get("Nats-Subject", "").rpartition(".")[2])
        own = {key: value for key, value in headers.items() if not key.startswith("Nats-")}
        return Delivery(int(headers["Nats-Sequence"]), reply.data, own)

    async def _is_end(self, first: int) -> bool:
        """Whether there is nothing to read because `first` is yet to come; False if it has just come."""
        state = await self._state()
        head, available = int(state["last_seq"]), int(state["first_seq"])
        if first == head + 1:
            return True
        if first > head:
            raise lost_end(self._name, first, head)
        if first < available:
            raise gap(self._name, first, available)
        confirmed = await self._confirm_gap(first, first + 1)
        if isinstance(confirmed, BusGap):
            raise confirmed
        return False

    async def _confirm_gap(self, wanted: int, found: int) -> FrazilError:
        """Ask the leader, not a replica: a gap stops the table until a person decides."""
        try:
            await self._bus.writer.api(f"STREAM.MSG.GET.{self._stream}", {"seq": wanted})
        except ApiError as error:
            if error.code == _NO_MESSAGE:
                return gap(self._name, wanted, found)
            return unknown("a read", str(error))
        return unknown("a read", "a replica of the stream has not caught up")

    async def head(self) -> int:
        return int((await self._state())["last_seq"])

    async def first(self) -> int:
        return int((await self._state())["first_seq"])

    async def wait(self, above: int, *, timeout_seconds: float) -> int:
        return await self._head_watch.wait(above, timeout_seconds, self._watched_head)

    async def _watched_head(self) -> int:
        """The head, read after the subscription was made, so that no announcement is missed in between."""
        if self._watching is None or (self._watching.done() and not _succeeded(self._watching)):
            self._watching = asyncio.create_task(self._watch(), name=f"watch the head of {self._name}")
        # One subscription for all waiters; a waiter that is cancelled does not leave it half made.
        await asyncio.shield(self._watching)
        return await self.head()

    async def _watch(self) -> None:
        await self._bus.reader.subscribe(_head_subject(self._name, self._identity), self._on_head)
        self._bus.reader.listeners.append(self._head_watch.interrupted)

    async def forget(self) -> None:
        """Stop listening: the stream is gone."""
        watching, self._watching = self._watching, None
        if watching is None:
            return
        await asyncio.wait({watching})
        if _succeeded(watching):
            self._bus.reader.listeners.remove(self._head_watch.interrupted)
        await self._bus.reader.unsubscribe(_head_subject(self._name, self._identity))

    async def _on_head(self, announcement: Msg) -> None:
        self._head_watch.announce(int((announcement.headers or {}).get("Nats-Sequence", 0)))

    async def trim(self, below: int) -> None:
        # Purging beyond the end would move the end: sequences must not jump.
        state = await self._state()
        sequence = min(below, int(state["last_seq"]) + 1)
        if sequence <= int(state["first_seq"]):
            return
        try:
            await self._bus.writer.api(f"STREAM.PURGE.{self._stream}", {"seq": sequence})
        except ApiError as error:
            raise unknown("a trim", str(error)) from error

    async def _state(self) -> dict[str, Any]:
        return dict((await self._info())["state"])

    async def _info(self) -> dict[str, Any]:
        info = await self._bus.info(self._name)
        if (found := identity_of(info)) != self._identity:
            raise replaced(self._name, self._identity, found)
        return info


def identity_of(info: Mapping[str, Any]) -> str:
    return str((info["config"].get("metadata") or {}).get(_IDENTITY, ""))


def _config(name: str, identity: str, first_sequence: int, max_bytes: int) -> dict[str, Any]:
    return {
        "name": _stream_name(name),
        "subjects": [_subject(name, identity)],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_bytes": max_bytes,
        "max_msgs": -1,
        "max_consumers": -1,
        "max_age": 0,
        "num_replicas": 1,
        "duplicate_window": int(DUPLICATE_WINDOW_SECONDS * 1e9),
        "first_seq": first_sequence,
        "allow_direct": True,
        "allow_atomic": True,
        "republish": {"src": _subject(name, identity), "dest": _head_subject(name, identity), "headers_only": True},
        "metadata": {_IDENTITY: identity},
    }


def _stream_name(name: str) -> str:
    return _PREFIX + name.replace(".", "-")


def _table_name(stream: str) -> str:
    return stream.removeprefix(_PREFIX).replace("-", ".")


def _subject(name: str, identity: str) -> str:
    return f"frazil.events.{name.replace('.', '-')}.{identity}"


def _head_subject(name: str, identity: str) -> str:
    return f"frazil.news.{name.replace('.', '-')}.{identity}"


def _expecting(last: int | None) -> dict[str, str]:
    return {} if last is None else {"Nats-Expected-Last-Sequence": str(last)}


def _succeeded(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is None


def _ends_a_read(reply: Msg) -> bool:
    return "Nats-Sequence" not in (reply.headers or {})
