"""Manifest of an artifact: where its rows come from, what it holds, and the hash of every file.

The manifest is written last, so a folder without one is no artifact. Its own size and hash, the seal, stand in the
registry: whoever loads an artifact begins there, and trusts nothing in the folder that the seal does not lead to.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from frazil.errors import FrazilError

FORMAT = 1
MANIFEST = "manifest.json"
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Seal:
    """The size and hash of a manifest."""

    size: int
    sha256: str


@dataclass(frozen=True)
class ArtifactFile:
    path: str
    """Below the artifact's folder, its names joined by `/`."""
    size: int
    sha256: str


@dataclass(frozen=True)
class SourceState:
    """The state of the table that the artifact was made from."""

    stream: str
    watermark: int
    """A position of that stream, exclusive: every event below it is in the artifact."""
    snapshot_id: int | None
    table_id: str = ""
    base_snapshot_id: int | None = None
    """Of an entity: the snapshot of its base, and up to where its history is folded into that."""
    folded_watermark: int | None = None


@dataclass(frozen=True)
class ArtifactModel:
    name: str
    version: str
    dims: int


@dataclass(frozen=True)
class ArtifactColumn:
    name: str
    type: str


@dataclass(frozen=True)
class Counts:
    rows: int
    documents: int
    """Rows that have text, and so at least one chunk."""
    chunks: int
    vectors: int
    """The chunks 0 … vectors - 1 have one each; those behind them are in quarantine, or there is no model."""
    quarantined: int


@dataclass(frozen=True)
class Canary:
    """A question whose answer is known, for one part: a vector or some words, and the ordinals that come first."""

    part: str
    expected: tuple[int, ...]
    words: str = ""
    vector: bytes = b""
    """Little-endian float32."""

    @classmethod
    def of_vector(cls, part: str, vector: Vectors, expected: tuple[int, ...]) -> Canary:
        return cls(part, expected, vector=np.ascontiguousarray(vector, dtype="<f4").tobytes())

    def as_vector(self) -> Vectors:
        return np.frombuffer(self.vector, dtype="<f4")


@dataclass(frozen=True)
class Manifest:
    table: str
    generation: str
    built_at: str
    cut: SourceState
    schema: tuple[ArtifactColumn, ...]
    model: ArtifactModel | None
    counts: Counts
    files: tuple[ArtifactFile, ...]
    engines: Mapping[str, str]
    """Versions of what wrote it, by name."""
    index: Mapping[str, Any] = field(default_factory=dict)
    """How the indexes were configured."""
    canaries: tuple[Canary, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The build report: seconds by step."""
    format: int = FORMAT

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class ManifestUnreadable(FrazilError):
    """It is not a manifest, or not one of a format that this version knows."""

    code = "artifact_manifest_damaged"


def decode_manifest(raw: bytes) -> Manifest:
    try:
        format = msgspec.json.decode(raw, type=dict[str, Any]).get("format")
        if format != FORMAT:
            raise ManifestUnreadable(
                f"this artifact has the format {format!r}, and this version reads {FORMAT}",
                code="artifact_format",
                hint="build the table's artifact again",
            )
        return msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestUnreadable(f"the manifest cannot be read: {error}") from error


def seal_of(raw: bytes) -> Seal:
    return Seal(len(raw), hashlib.sha256(raw).hexdigest())


def new_generation(at: datetime | None = None) -> str:
    """A name for a new artifact: unique, and names sort as the times at which they were given."""
    now = (at or datetime.now(UTC)).astimezone(UTC)
    return f"{now:%Y%m%dt%H%M%S}{now.microsecond // 1000:03d}-{secrets.token_hex(4)}"
