"""Response of an OpenAI-compatible server, `{"data": [{"index", "embedding"}, …]}`, decoded without trust.

A wrong vector is a failure of its text; only an answer that is no answer at all is refused as a whole.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from frazil.embedding.model import NoVector, RawVectors
from frazil.embedding.outcome import MISSING, NOT_NUMBERS, WRONG_DIMENSION


class Garbled(ValueError):
    """This is not an answer with embeddings."""


def vectors_of(body: bytes, texts: int, dims: int) -> RawVectors:
    """The vectors by the index that the server gives, which need not be the order they come in."""
    vectors = np.zeros((texts, dims), dtype=np.float64)
    failed: dict[int, NoVector] = {}
    seen: set[int] = set()
    for index, item in _indexed(_items(body), texts):
        if index in seen:
            failed[index] = NoVector(MISSING, "the provider answered it twice")
            continue
        seen.add(index)
        vector = _vector(item.get("embedding"), dims)
        if isinstance(vector, NoVector):
            failed[index] = vector
        else:
            vectors[index] = vector
    for index in set(range(texts)) - seen:
        failed[index] = NoVector(MISSING, f"the provider gave no vector for it, and {len(seen)} for {texts} texts")
    return RawVectors(vectors, failed)


def _items(body: bytes) -> list[dict[str, Any]]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise Garbled("its answer is not JSON") from None
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise Garbled("its answer has no list of vectors in `data`")
    return data


def _indexed(items: list[dict[str, Any]], texts: int) -> list[tuple[int, dict[str, Any]]]:
    """Each item with the index of its text; one that belongs to no text is left out."""
    if len(items) == texts and not any("index" in item for item in items):
        return list(enumerate(items))  # a server that leaves them out answers in order
    found = []
    for item in items:
        index = item.get("index")
        if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < texts:
            found.append((index, item))
    return found


def _vector(given: Any, dims: int) -> npt.NDArray[np.float64] | NoVector:
    try:
        if isinstance(given, str):
            numbers = np.frombuffer(base64.b64decode(given, validate=True), dtype="<f4").astype(np.float64)
        elif isinstance(given, list) and not any(isinstance(number, bool | str) for number in given):
            numbers = np.array(given, dtype=np.float64)
        else:
            return NoVector(NOT_NUMBERS, "the provider gave something that is not a list of numbers")
    except (ValueError, TypeError, OverflowError, binascii.Error):
        return NoVector(NOT_NUMBERS, "the provider gave something that is not a list of numbers")
    if numbers.shape != (dims,):
        return NoVector(WRONG_DIMENSION, f"the provider gave {numbers.size} numbers, and the model has {dims}")
    return numbers
