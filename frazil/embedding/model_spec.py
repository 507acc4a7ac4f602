"""Model spec: the name of a model and everything that opens it; a value that is sent to tasks on other machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import SecretStr

from frazil.embedding.settings import ModelSettings
from frazil.errors import Misconfigured
from frazil.storage import read_private

BUILT_IN: Mapping[str, ModelSettings] = {
    "wordllama": ModelSettings(),
    "minilm": ModelSettings(provider="onnx"),
}
"""Models that need no settings; a section of the same name comes first."""


@dataclass(frozen=True)
class ModelSpec:
    """A model by name, with its settings and its key. Its repr does not show the key; its pickle holds it."""

    name: str
    settings: ModelSettings
    key: SecretStr | None = None


def find_model_spec(
    name: str, models: Mapping[str, ModelSettings] | None = None, environment: Mapping[str, str] | None = None
) -> ModelSpec:
    """The model of this name: one of the settings, else a built-in one. Its key is read now, on this machine."""
    known = {**BUILT_IN, **(models or {})}
    settings = known.get(name)
    if settings is None:
        close = get_close_matches(name, known, n=1)
        raise Misconfigured(
            f"there is no model {name!r}",
            code="unknown_model",
            hint=(f"did you mean {close[0]!r}? " if close else "")
            + f"there are {', '.join(sorted(known))}; others are made by [models.<name>] in frazil.toml",
        )
    if settings.folder is not None:
        # Tasks run in other directories than the process that read the settings.
        settings = settings.model_copy(update={"folder": settings.folder.expanduser().absolute()})
    return ModelSpec(name, settings, _key(name, settings, os.environ if environment is None else environment))


def _key(name: str, settings: ModelSettings, environment: Mapping[str, str]) -> SecretStr | None:
    if settings.key_file is not None:
        return SecretStr(_private_line(name, settings.key_file.expanduser()))
    if settings.key_env is None:
        return None
    key = environment.get(settings.key_env, "").strip()
    if not key:
        raise Misconfigured(
            f"the environment variable {settings.key_env} (key_env of the model {name!r}) is not set",
            code="key_missing",
            hint=f"set {settings.key_env} to the key of the provider",
        )
    return SecretStr(_sendable(key, settings.key_env))


def _private_line(name: str, path: Path) -> str:
    lines = read_private(path, f"key_file of the model {name!r}").split()
    if len(lines) != 1:
        raise Misconfigured(
            f"{path} (key_file of the model {name!r}) must have exactly one line",
            code="bad_secret_file",
            hint="write only the key",
        )
    return _sendable(lines[0], str(path))


def _sendable(key: str, came_from: str) -> str:
    """A key that fits into a header; the HTTP library would quote another one in its error."""
    if not (key.isascii() and key.isprintable()):
        raise Misconfigured(
            f"the key in {came_from} has characters that no key has", code="bad_key", hint="write only the key"
        )
    return key
