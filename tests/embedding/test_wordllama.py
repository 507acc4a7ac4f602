"""The default model: files of its wheel, no network, the vectors of the library itself."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.embedding import Model, embedded, open_model
from frazil.embedding import wordllama as module
from frazil.embedding.wordllama import WordLlama
from frazil.errors import Misconfigured

TEXTS = ["Ice on the river", "frozen water in a stream", "quarterly tax report", "日本語 🙂", "x" * 5000, "a  b\n\nc"]


@pytest.fixture(scope="module")
def model() -> Model:
    return open_model("wordllama")


def test_it_loads_from_its_wheel_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: Any) -> None:
        raise AssertionError("it must not reach for the network")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    before = list(logging.getLogger().handlers)
    model = WordLlama()
    assert model.embed(TEXTS).shape == (6, 256) and model.dims == 256 and model.name == "wordllama"
    assert logging.getLogger().handlers == before, "the library would configure everybody's logging"
    assert len(model.version) == 16 and model.version == WordLlama("other").version


def test_its_vectors_are_those_of_the_library(model: Model) -> None:
    library = pytest.importorskip("wordllama")
    plain = library.WordLlama.load(cache_dir=Path(library.__file__).parent, disable_download=True)
    assert np.allclose(model.embed(TEXTS), plain.embed(TEXTS, norm=True), atol=1e-5)


def test_near_in_meaning_is_near_in_space(model: Model) -> None:
    ice, water, tax = model.embed(TEXTS[:3])
    assert ice @ water > ice @ tax + 0.1


def test_texts_without_words_are_failures_not_nan(model: Model) -> None:
    vectors = model.embed(["", " ", "\n\t\u00a0", "a"])
    assert not vectors[:3].any() and np.isclose(np.linalg.norm(vectors[3]), 1)
    assert [failure.code for failure in embedded(model, ["", " ", "a"]).failed] == ["zero", "zero"]
    assert model.embed([]).shape == (0, 256)


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(), max_size=40), max_size=8))
def test_any_text_has_its_own_vector_or_none(texts: list[str]) -> None:
    model = open_model("wordllama")
    vectors = model.embed(texts)
    assert vectors.shape == (len(texts), 256) and np.isfinite(vectors).all()
    alone = [model.embed([text])[0] for text in texts]
    assert np.array_equal(vectors, np.array(alone, np.float32).reshape(-1, 256)), "company does not matter"


def test_threads_share_it(model: Model) -> None:
    expected = model.embed(TEXTS)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(model.embed, [TEXTS] * 40):
            assert np.array_equal(found, expected)


_DAEMON = """
import os, sys, frazil.embedding as room
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        model = room.open_model("wordllama")
        assert model.embed(["Ice on the river", "tax"]).shape == (2, 256)
        os._exit(7)
    children.append(child)
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [7, 7, 7]
"""


def test_a_daemon_forks_processes_that_open_their_own() -> None:
    """As Spark's does: it imports, forks, and each of its children loads the model."""
    subprocess.run([sys.executable, "-c", _DAEMON], check=True, timeout=120)


def test_without_its_wheel_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(Misconfigured) as caught:
        WordLlama()
    assert caught.value.code == "model_missing" and "pip install wordllama" in caught.value.hint


def test_another_wheel_is_refused_by_the_file_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "wordllama" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wordllama", raising=False)
    with pytest.raises(Misconfigured, match="safetensors"):
        WordLlama()
