"""Model opener: provider to module, imported when it is first used."""

from __future__ import annotations

import os
import threading

from frazil.embedding.model import Model
from frazil.embedding.model_spec import ModelSpec, find_model_spec

_opened: dict[ModelSpec, Model] = {}
_inherited: list[dict[ModelSpec, Model]] = []
_opening = threading.Lock()


def open_model(spec: ModelSpec | str) -> Model:
    """The model, loaded; a name alone is one that needs no settings. Opened again it is the same object.

    Loading takes a third of a second and 60 MB for wordllama, and a second and 270 MB for a MiniLM. It touches no
    network. A missing package is `Misconfigured`, with a hint what to install.
    """
    wanted = find_model_spec(spec) if isinstance(spec, str) else spec
    with _opening:
        if wanted not in _opened:
            _opened[wanted] = _load(wanted)
        return _opened[wanted]


def _forget() -> None:
    """A forked process has neither its parent's threads and connections nor the thread that may hold the lock.

    The parent's models are kept and never used: ONNX Runtime waits for its threads when a session is freed, and in the
    child there are none. The child would hang before its first line.
    """
    global _opened, _opening
    _inherited.append(_opened)
    _opened = {}
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _load(spec: ModelSpec) -> Model:
    if spec.settings.provider == "openai":
        from frazil.embedding.openai import OpenAI

        return OpenAI(spec)
    if spec.settings.provider == "onnx":
        from frazil.embedding.onnx_model import SentenceModel

        return SentenceModel(spec)
    from frazil.embedding.wordllama import WordLlama

    return WordLlama(spec.name)
