"""Providers behind HTTP, against a real server that speaks the protocol, well and badly."""

from __future__ import annotations

import logging
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import SecretStr

from frazil.embedding import Embedded, ModelSettings, ModelSpec, embedded, embedded_in_batches, open_model
from frazil.embedding.openai import OpenAI
from frazil.errors import FrazilError, Misconfigured, Unavailable
from tests.embedding.server import (
    DIMS,
    Behaviour,
    EmbeddingServer,
    cut_off,
    dripping,
    endless,
    failing,
    hanging,
    packed,
    refusing,
    saying,
    serving,
    vector_of,
)

KEY = "sk-very-secret-0123456789"
TEXTS = [f"text {number}" for number in range(10)]


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddingServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: EmbeddingServer) -> EmbeddingServer:
    running.key, running.behaviour = "", None
    for memory in (running.asked, running.moments, running.script):
        memory.clear()
    return running


def model_at(server: EmbeddingServer, key: str = "", **words: Any) -> OpenAI:
    given: dict[str, Any] = {"url": server.url, "model": "tiny", "dims": DIMS, "batch": 4, "retries": 2}
    settings = ModelSettings(provider="openai", **(given | {"timeout_seconds": 60.0} | words))
    return OpenAI(ModelSpec("far", settings, SecretStr(key) if key else None))


def unit_of(text: str) -> npt.NDArray[np.float64]:
    vector = np.array(vector_of(text))
    scaled: npt.NDArray[np.float64] = vector / np.linalg.norm(vector)
    return scaled


def test_texts_go_in_batches_and_come_back_as_unit_vectors(server: EmbeddingServer) -> None:
    model = model_at(server)
    vectors = model.embed(TEXTS)
    assert [len(asked["input"]) for asked in server.asked] == [4, 4, 2]
    assert server.asked[0]["model"] == "tiny" and set(server.asked[0]) == {"model", "input"}
    assert vectors.dtype == np.float32 and vectors.shape == (10, DIMS)
    assert np.allclose(vectors, [unit_of(text) for text in TEXTS], atol=1e-6)
    assert (model.name, model.version, model.dims) == ("far", "tiny@1", DIMS)


def test_what_is_set_is_asked_for(server: EmbeddingServer) -> None:
    server.behaviour = saying(
        lambda said: said | {"data": [item | {"embedding": packed(item["embedding"])} for item in said["data"]]}
    )
    model = model_at(server, encoding_format="base64", send_dims=True, version="2024-05")
    assert np.allclose(model.embed(["a"]), [unit_of("a")], atol=1e-6)
    assert server.asked[0]["encoding_format"] == "base64" and server.asked[0]["dimensions"] == DIMS
    assert model.version == "tiny@2024-05"


def test_answers_out_of_order_find_their_texts(server: EmbeddingServer) -> None:
    server.behaviour = saying(lambda said: said | {"data": said["data"][::-1]})
    assert np.allclose(model_at(server).embed(TEXTS), [unit_of(text) for text in TEXTS], atol=1e-6)


def test_answers_without_any_index_are_in_order(server: EmbeddingServer) -> None:
    server.behaviour = saying(lambda said: {"data": [{"embedding": item["embedding"]} for item in said["data"]]})
    assert np.allclose(model_at(server).embed(TEXTS), [unit_of(text) for text in TEXTS], atol=1e-6)


def _second(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Behaviour:
    """The answer with its second item changed, or left out."""

    def changed(said: dict[str, Any]) -> dict[str, Any]:
        items = [change(item) if item["index"] == 1 else item for item in said["data"]]
        return said | {"data": [item for item in items if item is not None]}

    return saying(changed)


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (_second(lambda item: item | {"embedding": item["embedding"][:-1]}), "wrong_dimension"),
        (_second(lambda item: item | {"embedding": item["embedding"] * 2}), "wrong_dimension"),
        (_second(lambda item: item | {"embedding": []}), "wrong_dimension"),
        (_second(lambda item: item | {"embedding": packed(item["embedding"][:3])}), "wrong_dimension"),
        (_second(lambda item: item | {"embedding": [float("nan"), *item["embedding"][1:]]}), "not_finite"),
        (_second(lambda item: item | {"embedding": [float("-inf"), *item["embedding"][1:]]}), "not_finite"),
        (_second(lambda item: item | {"embedding": [None, *item["embedding"][1:]]}), "not_finite"),
        (_second(lambda item: item | {"embedding": ["1", *item["embedding"][1:]]}), "not_numbers"),
        (_second(lambda item: item | {"embedding": "%%%"}), "not_numbers"),
        (_second(lambda item: item | {"embedding": None}), "not_numbers"),
        (_second(lambda item: item | {"embedding": [[1.0] * DIMS]}), "wrong_dimension"),
        (_second(lambda item: item | {"embedding": [0.0] * DIMS}), "zero"),
        (_second(lambda item: None), "missing"),
        (_second(lambda item: {"embedding": item["embedding"]}), "missing"),
        (_second(lambda item: item | {"index": 77}), "missing"),
        (_second(lambda item: item | {"index": -1}), "missing"),
        (_second(lambda item: item | {"index": "1"}), "missing"),
    ],
)
def test_one_bad_vector_fails_one_text(server: EmbeddingServer, behaviour: Behaviour, code: str) -> None:
    server.behaviour = behaviour
    outcome = embedded(model_at(server), TEXTS[:4])
    assert [(failure.index, failure.code) for failure in outcome.failed] == [(1, code)]
    assert outcome.of.tolist() == [0, 2, 3]
    assert np.allclose(outcome.vectors, [unit_of(TEXTS[index]) for index in (0, 2, 3)], atol=1e-6)
    assert len(server.asked) == 1, "a bad vector is no reason to ask again"


def test_two_vectors_for_one_text_are_none(server: EmbeddingServer) -> None:
    server.behaviour = saying(lambda said: said | {"data": [*said["data"], said["data"][0]]})
    assert [failure.index for failure in embedded(model_at(server), TEXTS[:3]).failed] == [0]


@pytest.mark.parametrize("given", [[], [0], [0, 1, 2, 3, 4, 5, 6]])
def test_fewer_vectors_or_more_than_texts(server: EmbeddingServer, given: list[int]) -> None:
    server.behaviour = saying(
        lambda said: {"data": [{"index": index, "embedding": vector_of(TEXTS[index])} for index in given]}
    )
    outcome = embedded(model_at(server), TEXTS[:3])
    assert outcome.of.tolist() == [index for index in given if index < 3]
    assert {failure.code for failure in outcome.failed} <= {"missing"}


def test_numbers_beyond_a_float_still_have_a_direction(server: EmbeddingServer) -> None:
    server.behaviour = _second(lambda item: item | {"embedding": [1e300, *[0.0] * (DIMS - 1)]})
    outcome = embedded(model_at(server), TEXTS[:2])
    assert outcome.failed == () and outcome.vectors[1].tolist() == [1.0, *[0.0] * (DIMS - 1)]


def test_empty_texts_are_not_sent(server: EmbeddingServer) -> None:
    outcome = embedded(model_at(server), ["", "a", " \n"])
    assert [(failure.index, failure.code) for failure in outcome.failed] == [(0, "zero"), (2, "zero")]
    assert [asked["input"] for asked in server.asked] == [["a"]]
    assert embedded(model_at(server), ["", " "]).reasons() == {"zero": 2}
    assert len(server.asked) == 1


def test_halves_of_characters_do_not_spoil_a_batch(server: EmbeddingServer) -> None:
    assert embedded(model_at(server), ["a\ud800b", "c"]).failed == ()
    assert server.asked[0]["input"] == ["a?b", "c"]


def test_a_refused_text_is_found_and_the_others_are_embedded(server: EmbeddingServer) -> None:
    server.behaviour = refusing(lambda text: text in (TEXTS[2], TEXTS[9]))
    outcome = embedded(model_at(server, batch=10), TEXTS)
    assert [(failure.index, failure.code) for failure in outcome.failed] == [(2, "refused"), (9, "refused")]
    assert "too long" in outcome.failed[0].reason
    assert len(outcome.vectors) == 8


def test_all_texts_refused_are_failures_if_another_is_taken(server: EmbeddingServer) -> None:
    server.behaviour = refusing(lambda text: text.startswith("text"))
    assert embedded(model_at(server), TEXTS[:2]).reasons() == {"refused": 2}


def test_a_provider_that_refuses_everything_is_set_up_wrongly(server: EmbeddingServer) -> None:
    server.behaviour = failing(400, "unknown encoding_format")
    with pytest.raises(Misconfigured, match="unknown encoding_format") as caught:
        embedded(model_at(server), TEXTS[:2])
    assert caught.value.code == "model_refused"


def test_429_then_well(server: EmbeddingServer) -> None:
    server.script[:] = [failing(429, **{"Retry-After": "1"}), failing(503)]
    began = time.monotonic()
    assert embedded(model_at(server), ["a"]).failed == ()
    assert len(server.asked) == 3
    assert time.monotonic() - began >= 1.0, "the server's own pause is kept"


def test_a_pause_until_a_date_is_understood(server: EmbeddingServer) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    server.behaviour = failing(429, **{"Retry-After": later})
    with pytest.raises(Unavailable) as caught:
        model_at(server).embed(["a"])
    assert len(server.asked) == 1, "nobody waits for an hour in here"
    assert caught.value.retry_after_seconds > 3000 and caught.value.transient


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (failing(500, "broken"), "model_unavailable"),
        (failing(429), "model_unavailable"),
        (hanging, "model_unavailable"),
        (dripping, "model_unavailable"),
        (cut_off, "model_unavailable"),
        (endless, "model_bad_answer"),
        (saying(lambda said: {"oops": 1}), "model_bad_answer"),
        (saying(lambda said: {"data": [1, 2]}), "model_bad_answer"),
        (saying(lambda said: []), "model_bad_answer"),
    ],
)
def test_a_provider_that_is_down_quarantines_nothing(server: EmbeddingServer, behaviour: Behaviour, code: str) -> None:
    server.behaviour = behaviour
    with pytest.raises(Unavailable) as caught:
        embedded(model_at(server, retries=1, timeout_seconds=0.5), TEXTS[:3])
    assert caught.value.code == code and caught.value.transient and "far" in caught.value.message
    assert len(server.asked) == 2, "it was tried again once, as set"


def test_nobody_there(server: EmbeddingServer) -> None:
    with pytest.raises(Unavailable) as caught:
        model_at(server, url="http://127.0.0.1:9", retries=0).embed(["a"])
    assert caught.value.code == "model_unavailable"


def test_what_was_done_before_it_went_down_is_kept(server: EmbeddingServer) -> None:
    async def good(body: dict[str, Any]) -> Any:
        return await saying(lambda said: said)(body)

    server.script[:] = [good, good]
    server.behaviour = failing(500)
    done: list[Embedded] = []
    parts = embedded_in_batches(model_at(server, retries=0), TEXTS, batch=4)
    with pytest.raises(Unavailable):
        done.extend(iter(lambda: next(parts), None))
    assert [(part.first, part.texts, len(part.vectors)) for part in done] == [(0, 4, 4), (4, 4, 4)]


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "model_key_refused"), (403, "model_key_refused"), (404, "model_not_found"), (402, "model_refused"),
     (301, "model_refused")],
)  # fmt: skip
def test_what_trying_again_cannot_help(server: EmbeddingServer, status: int, code: str) -> None:
    server.behaviour = failing(status, "model 'tiny' not found", Location="http://127.0.0.1:9/")
    with pytest.raises(Misconfigured) as caught:
        embedded(model_at(server), TEXTS[:2])
    assert caught.value.code == code and not caught.value.transient and "[models.far]" in caught.value.hint
    assert len(server.asked) == 1


def test_the_key_is_sent_and_shown_nowhere(server: EmbeddingServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.key = KEY
    model = model_at(server, KEY)
    assert embedded(model, ["a"]).failed == ()
    shown = [repr(model), repr(ModelSpec("far", ModelSettings(), SecretStr(KEY)))]
    server.key = "another"
    shown += _told(lambda: model.embed(["a"]))
    server.key = KEY
    for status in (400, 404, 500):
        server.behaviour = failing(status, f"your key {KEY} is odd")
        shown += _told(lambda: model_at(server, KEY, retries=0).embed(["a"]))
    server.behaviour = refusing(lambda text: text == "b")
    shown += [str(embedded(model_at(server, KEY), ["a", "b"]))]
    assert not any(KEY in text for text in [*shown, caplog.text])


def _told(call: Callable[[], object]) -> list[str]:
    """All that a person could come to read of the error."""
    with pytest.raises(FrazilError) as caught:
        call()
    return ["".join(traceback.format_exception(caught.value)), str(caught.value.body()), repr(caught.value)]


def test_requests_keep_their_distance_in_all_threads(server: EmbeddingServer) -> None:
    model = model_at(server, batch=1, max_requests_per_second=20.0)
    threads = [threading.Thread(target=model.embed, args=(TEXTS[:3],)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(server.moments) == 9
    # The first is at once; after it, eight distances of 1/20 s. The network may bunch them, but not all of it.
    assert max(server.moments) - min(server.moments) >= 8 / 20 * 0.8


def test_a_spec_travels_to_another_process(server: EmbeddingServer) -> None:
    server.key = KEY
    settings = ModelSettings(provider="openai", url=server.url, model="tiny", dims=DIMS)
    spec = pickle.loads(pickle.dumps(ModelSpec("far", settings, SecretStr(KEY))))  # noqa: S301
    model = open_model(spec)
    assert open_model(spec) is model
    assert np.allclose(model.embed(["a"]), [unit_of("a")], atol=1e-6)
