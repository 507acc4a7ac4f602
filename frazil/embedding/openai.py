"""OpenAI-compatible provider: any server with OpenAI's `POST /embeddings`: Ollama, Voyage, vLLM, a server of one's own.

Texts go in batches, not faster than allowed. A failure that may pass is tried again, later and later, or
when the server allows it.
A batch that is refused is halved until the text that is at fault stands alone. The key is in no error and in no log.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn
from urllib.parse import urlsplit

import httpx
import numpy as np

from frazil import __version__
from frazil.embedding.model import NoVector, RawVectors, Vectors, clean, unit
from frazil.embedding.model_spec import ModelSpec
from frazil.embedding.openai_response import Garbled, vectors_of
from frazil.embedding.outcome import REFUSED, ZERO
from frazil.embedding.pace import RequestPace
from frazil.errors import Misconfigured, Unavailable

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 60.0
_PASSING = (408, 409, 425, 429)
_OF_THE_TEXT = (400, 413, 422)
# A number of a vector is some 22 bytes of JSON; an answer far beyond that is none.
_BYTES_A_NUMBER = 64
_BYTES_BESIDE = 1 << 20
_CONNECT_SECONDS = 5.0
_PROBE = "frazil"


class _Passing(Exception):
    """It may succeed later, perhaps not before `after_seconds`."""

    def __init__(self, why: str, *, after_seconds: float = 0.0, code: str = "model_unavailable") -> None:
        super().__init__(why)
        self.after_seconds = after_seconds
        self.code = code


class _Refused(Exception):
    """The server does not take these texts."""


class OpenAI:
    """Threads may share it; each process opens its own, and has the rate to itself."""

    def __init__(self, spec: ModelSpec) -> None:
        settings = spec.settings
        if settings.url is None or settings.model is None or settings.dims is None:
            raise Misconfigured(
                f"the model {spec.name!r} has no address",
                code="bad_model",
                hint=f"write url, model and dims below [models.{spec.name}]",
            )
        self.name = spec.name
        self.version = f"{settings.model}@{settings.version}"
        self.dims = settings.dims
        self._settings = settings
        self._key = spec.key.get_secret_value() if spec.key else ""
        self._url = f"{settings.url}/embeddings"
        self._pace = RequestPace(settings.max_requests_per_second)
        self._has_answered = False
        self._http = httpx.Client(
            headers={"User-Agent": f"frazil/{__version__}", "Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            timeout=httpx.Timeout(settings.timeout_seconds, connect=min(_CONNECT_SECONDS, settings.timeout_seconds)),
            # A proxy of the environment is for the world outside, not for this machine.
            trust_env=urlsplit(settings.url).hostname not in ("localhost", "127.0.0.1", "::1"),
        )

    def __repr__(self) -> str:
        return f"<model {self.name} at {self._url}>"

    def embed(self, texts: Sequence[str]) -> Vectors:
        answer = self.answer(texts)
        vectors = unit(answer.vectors)
        vectors[list(answer.failed)] = 0.0
        vectors[~np.isfinite(vectors).all(axis=1)] = 0.0
        return vectors

    def answer(self, texts: Sequence[str]) -> RawVectors:
        vectors = np.zeros((len(texts), self.dims), dtype=np.float64)
        # Servers refuse an empty text, and the rest of the batch with it.
        failed = {index: NoVector(ZERO, "it is empty") for index, text in enumerate(texts) if not text.strip()}
        sent = [index for index in range(len(texts)) if index not in failed]
        for first in range(0, len(sent), self._settings.batch):
            self._fill(texts, sent[first : first + self._settings.batch], vectors, failed)
        self._check_refusals([failed[index] for index in sent if index in failed], len(sent))
        return RawVectors(vectors, failed)

    def _fill(self, texts: Sequence[str], which: list[int], vectors: np.ndarray, failed: dict[int, NoVector]) -> None:
        try:
            answer = self._request([texts[index] for index in which])
        except _Refused as refusal:
            if len(which) == 1:
                failed[which[0]] = NoVector(REFUSED, f"the provider refused it: {refusal}")
                return
            half = len(which) // 2
            self._fill(texts, which[:half], vectors, failed)
            self._fill(texts, which[half:], vectors, failed)
            return
        self._has_answered = True
        vectors[which] = answer.vectors
        failed.update((which[index], why) for index, why in answer.failed.items())

    def _check_refusals(self, failures: list[NoVector], sent: int) -> None:
        """If all texts are refused and none was ever taken, try one that every server takes."""
        refused = [failure for failure in failures if failure.code == REFUSED]
        if sent == 0 or len(refused) < sent or self._has_answered:
            return
        try:
            self._request([_PROBE])
        except _Refused as refusal:
            raise Misconfigured(
                f"the model {self.name!r} at {self._url} refuses every text: {refusal}",
                code="model_refused",
                hint=f"check model, dims and encoding_format below [models.{self.name}]",
            ) from None
        self._has_answered = True

    def _request(self, texts: list[str]) -> RawVectors:
        """One request, tried again while that can help."""
        body = self._body(texts)
        tries = 0
        while True:
            self._pace.wait()
            try:
                return vectors_of(self._post(body, len(texts)), len(texts), self.dims)
            except Garbled as error:
                passing = _Passing(str(error), code="model_bad_answer")
            except _Passing as error:
                passing = error
            except httpx.TransportError as error:
                passing = _Passing(self._without_key(f"{error or type(error).__name__}"))
            pause = _pause(tries, passing.after_seconds)
            if tries >= self._settings.retries or pause > _LONGEST_PAUSE_SECONDS:
                raise Unavailable(
                    f"the model {self.name!r} at {self._url} does not answer: {passing}",
                    code=passing.code,
                    retry_after_seconds=max(pause, 1.0),
                    hint="is it running? what was embedded before is kept, and the rest is tried again",
                )
            self._pace.rest(passing.after_seconds)
            time.sleep(pause)
            tries += 1

    def _body(self, texts: list[str]) -> bytes:
        body: dict[str, object] = {"model": self._settings.model, "input": [clean(text) for text in texts]}
        if self._settings.encoding_format:
            body["encoding_format"] = self._settings.encoding_format
        if self._settings.send_dims:
            body["dimensions"] = self.dims
        return json.dumps(body, ensure_ascii=False).encode()

    def _post(self, body: bytes, texts: int) -> bytes:
        deadline = time.monotonic() + self._settings.timeout_seconds
        limit = _BYTES_BESIDE + _BYTES_A_NUMBER * texts * self.dims
        received = bytearray()
        with self._http.stream("POST", self._url, content=body) as response:
            for part in response.iter_bytes():
                received += part
                if len(received) > limit:
                    raise _Passing(f"its answer is longer than {limit:,} bytes", code="model_bad_answer")
                # The library's own limit is for each part; a server may send a byte at a time for ever.
                if time.monotonic() > deadline:
                    raise _Passing(f"it took longer than {self._settings.timeout_seconds:g} s")
        if response.status_code == 200:
            return bytes(received)
        self._judge(response, bytes(received))

    def _judge(self, response: httpx.Response, body: bytes) -> NoReturn:
        status = response.status_code
        if status in _PASSING or status >= 500:
            raise _Passing(f"HTTP {status} {self._server_message(body)}".strip(), after_seconds=_retry_after(response))
        if status in _OF_THE_TEXT:
            raise _Refused(f"HTTP {status} {self._server_message(body)}".strip())
        if status in (401, 403):
            # The message of the server often quotes the key here.
            raise Misconfigured(
                f"the model {self.name!r} at {self._url} does not accept the key (HTTP {status})",
                code="model_key_refused",
                hint=f"check key_env or key_file below [models.{self.name}]",
            )
        raise Misconfigured(
            f"the model {self.name!r} at {self._url} answers HTTP {status} {self._server_message(body)}".strip(),
            code="model_not_found" if status in (404, 405) else "model_refused",
            hint=f"check url and model below [models.{self.name}]",
        )

    def _server_message(self, body: bytes) -> str:
        """The error message of the server, in one short line without the key."""
        try:
            answer = json.loads(body)
            error = answer.get("error", answer) if isinstance(answer, dict) else answer
            message = error.get("message") if isinstance(error, dict) else error
        except (ValueError, RecursionError):
            message = None
        return " ".join(self._without_key(message).split())[:200] if isinstance(message, str) else ""

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _pause(tries: int, least_seconds: float) -> float:
    """Seconds until the next try: at least what the server demands, with jitter so that tasks spread."""
    doubled = min(10.0, _FIRST_PAUSE_SECONDS * 2.0**tries)
    return max(least_seconds, doubled) + doubled * 0.25 * random.random()  # noqa: S311 (spreading, not secrecy)


def _retry_after(response: httpx.Response) -> float:
    header = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
