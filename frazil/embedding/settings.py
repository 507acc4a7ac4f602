"""Settings of embedding models: `[models.<name>]` in frazil.toml."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from frazil.errors import Misconfigured

_SECRETS = ("key", "api_key", "token", "password", "secret")


class ModelSettings(BaseModel):
    """One model. The key of a provider is a secret and never stands here."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    provider: Literal["wordllama", "onnx", "openai"] = Field(
        default="wordllama", description="Who makes the vectors: wordllama, onnx, or openai for any server like it."
    )
    folder: Path | None = Field(
        default=None,
        description="onnx: a folder with model.onnx (or the model.safetensors of a BERT) and tokenizer.json; "
        "without it the weights of all-MiniLM-L6-v2 that frazil[onnx] brings.",
    )
    pooling: Literal["mean", "cls"] = Field(
        default="mean", description="onnx: how the vectors of tokens become one, as the model was trained."
    )
    max_tokens: int = Field(default=256, ge=8, le=8192, description="onnx: what is longer is cut off there.")
    threads: int = Field(default=0, ge=0, le=256, description="onnx: threads of one text; 0 means one per core.")
    url: str | None = Field(
        default=None, description="openai: the address that /embeddings is below, as in http://127.0.0.1:11434/v1."
    )
    model: str | None = Field(default=None, min_length=1, description="openai: what the server calls the model.")
    dims: int | None = Field(default=None, ge=1, le=65_536, description="openai: how many numbers a vector has.")
    version: str = Field(
        default="1",
        pattern=r"^[\w.-]{1,64}$",
        description="openai: change it when the server has other weights under the same name; all is embedded again.",
    )
    key_env: str | None = Field(default=None, description="openai: environment variable that holds the key.")
    key_file: Path | None = Field(default=None, description="openai: file of mode 0600 whose only line is the key.")
    batch: int = Field(default=64, ge=1, le=2048, description="openai: most texts in one request.")
    max_requests_per_second: float | None = Field(
        default=None, gt=0, description="openai: how many requests one process may send; no limit where it is not set."
    )
    timeout_seconds: float = Field(default=30.0, gt=0, description="openai: how long one request may take.")
    retries: int = Field(
        default=4, ge=0, le=20, description="openai: how often a request is tried again that may succeed later."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="openai: the encoding to request; base64 is shorter, and not every server has it."
    )
    send_dims: bool = Field(default=False, description="openai: request vectors of `dims` numbers.")

    @model_validator(mode="before")
    @classmethod
    def _no_key_here(cls, values: Any) -> Any:
        """Refused before anything else, so that no message shows it."""
        if isinstance(values, Mapping):
            for name in _SECRETS:
                if name in values:
                    raise Misconfigured(
                        f"`{name}` of a model is a secret and does not belong into settings",
                        code="secret_in_file",
                        hint='write key_env = "A_VARIABLE" or key_file = "a/path"; '
                        "and change the key, it may have been copied with the file",
                    )
        return values

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            good = False
        if not good:
            raise ValueError("it is not an address; write http://host:port/v1 or https://host/v1")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("it holds more than an address; a key goes into key_env or key_file")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _complete(self) -> ModelSettings:
        if self.key_env is not None and self.key_file is not None:
            raise ValueError("a model has key_env or key_file, not both")
        if self.provider == "openai":
            missing = [name for name in ("url", "model", "dims") if getattr(self, name) is None]
            if missing:
                raise ValueError(f"a model of the provider openai needs {', '.join(missing)}")
            if (self.key_env or self.key_file) and not self._is_private():
                raise ValueError("a key would be sent unencrypted; write https://")
        return self

    def _is_private(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        parts = urlsplit(self.url or "")
        if parts.scheme == "https" or parts.hostname == "localhost":
            return True
        try:
            return ipaddress.ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return False
