"""A small server that speaks OpenAI's embeddings, on a real socket, and can be told to misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

DIMS = 8


def vector_of(text: str) -> list[float]:
    """The vector that the server has for a text: any numbers, but always the same."""
    seed = int.from_bytes(sha256(text.encode()).digest()[:8], "big")
    return [float(number) for number in np.random.default_rng(seed).normal(size=DIMS) * 3]


def answer_to(texts: list[str]) -> dict[str, Any]:
    data = [{"object": "embedding", "index": i, "embedding": vector_of(text)} for i, text in enumerate(texts)]
    return {"object": "list", "data": data, "model": "tiny"}


def packed(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode()


def plain(answer: Any) -> Response:
    """JSON as Python writes it: with NaN and Infinity, which good JSON has not."""
    return Response(json.dumps(answer), media_type="application/json")


Behaviour = Callable[[dict[str, Any]], Awaitable[Response]]


@dataclass
class EmbeddingServer:
    """What was asked, and how the next requests are answered: by `script` in order, then by `behaviour`."""

    url: str = ""
    key: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    script: list[Behaviour] = field(default_factory=list)
    behaviour: Behaviour | None = None

    async def answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(body)
        self.moments.append(time.monotonic())
        said = request.headers.get("authorization", "")
        if self.key and said != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": f"Incorrect API key provided: {said}"}}, status_code=401)
        behaviour = self.script.pop(0) if self.script else self.behaviour
        return await behaviour(body) if behaviour else plain(answer_to(body["input"]))


def failing(status: int, message: str = "no", **headers: str) -> Behaviour:
    async def fail(body: dict[str, Any]) -> Response:
        return JSONResponse({"error": {"message": message}}, status_code=status, headers=headers)

    return fail


def saying(change: Callable[[dict[str, Any]], Any]) -> Behaviour:
    """The right answer, changed."""

    async def say(body: dict[str, Any]) -> Response:
        return plain(change(answer_to(body["input"])))

    return say


def refusing(is_bad: Callable[[str], bool]) -> Behaviour:
    async def judge(body: dict[str, Any]) -> Response:
        if any(is_bad(text) for text in body["input"]):
            return JSONResponse({"error": "input is too long"}, status_code=400)
        return plain(answer_to(body["input"]))

    return judge


async def hanging(body: dict[str, Any]) -> Response:
    await asyncio.sleep(20)
    return plain({})


async def dripping(body: dict[str, Any]) -> Response:
    async def drops() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" "
            await asyncio.sleep(0.05)

    return StreamingResponse(drops())


async def endless(body: dict[str, Any]) -> Response:
    async def flood() -> AsyncIterator[bytes]:
        for _ in range(10_000):
            yield b"[" * 65_536

    return StreamingResponse(flood())


async def cut_off(body: dict[str, Any]) -> Response:
    """Promises more than it sends: the connection breaks in the middle of the answer."""

    async def half() -> AsyncIterator[bytes]:
        yield b'{"data": ['
        raise ConnectionResetError

    return StreamingResponse(half(), headers={"content-length": "100000"})


@contextlib.contextmanager
def serving() -> Iterator[EmbeddingServer]:
    state = EmbeddingServer()
    app = Starlette(routes=[Route("/v1/embeddings", state.answer, methods=["POST"])])
    listener = socket.create_server(("127.0.0.1", 0))
    state.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
