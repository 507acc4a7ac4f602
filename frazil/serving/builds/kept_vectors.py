"""Kept vectors: those that a build leaves on its machine for the next one, which reads only new ones from the bucket.

The file is that of the artifact, linked and not copied; the names of its chunks lie beside it. It is worth nothing but
time: whatever is wrong with it, the build reads all vectors from the table.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from frazil.crash import crash_point
from frazil.events import Keys, id_keys
from frazil.serving.artifacts.contents import VECTORS, mapped
from frazil.serving.artifacts.manifest import ArtifactFile, ArtifactModel, Manifest, Vectors
from frazil.serving.artifacts.write import hashed
from frazil.serving.builds.plan import Origin

NAMES = "names.arrow"
NAME_SCHEMA = pa.schema([pa.field("name", pa.string(), nullable=False)])
_MANIFEST = "kept.json"
_UNFINISHED = ".kept-"
_DEAD_SECONDS = 3_600.0


@dataclass(frozen=True)
class KeptManifest:
    """What the kept vectors are of."""

    generation: str
    model: ArtifactModel
    origin: Origin
    files: tuple[ArtifactFile, ...]


class KeptVectors:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.vectors: Vectors = mapped(folder / VECTORS)

    @classmethod
    def opened(cls, folder: Path) -> KeptVectors | None:
        """The vectors in this folder, if they still are what was kept."""
        manifest = kept_manifest(folder)
        try:
            if manifest is None or hashed(folder, [file.path for file in manifest.files]) != manifest.files:
                return None
            return cls(folder)
        except OSError:  # another build took its place
            return None

    def keys(self) -> Keys:
        with pa.memory_map(str(self._folder / NAMES)) as file, pa.ipc.open_file(file) as reader:
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
            found = [id_keys(batch.column(0)) for batch in batches if batch.num_rows]
        return np.concatenate([np.empty((0, 2), np.uint64), *found])


def kept_manifest(folder: Path) -> KeptManifest | None:
    try:
        return msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=KeptManifest)
    except (OSError, msgspec.MsgspecError):
        return None


def newest(place: Path) -> Path | None:
    """The folder of the newest generation that was kept here."""
    return max(_folders(place), key=lambda folder: folder.name, default=None)


def keep(place: Path, artifact: Path, names: Path, manifest: Manifest, origin: Origin) -> None:
    """Keep the vectors of this artifact, in the place of those before. It may be killed anywhere."""
    assert manifest.model is not None
    place.mkdir(parents=True, exist_ok=True)
    unfinished = place / f"{_UNFINISHED}{uuid.uuid4().hex}"
    unfinished.mkdir()
    try:
        os.link(artifact / VECTORS, unfinished / VECTORS)
        os.link(names, unfinished / NAMES)
        vectors = next(file for file in manifest.files if file.path == VECTORS)
        kept = KeptManifest(manifest.generation, manifest.model, origin, (vectors, *hashed(unfinished, [NAMES])))
        (unfinished / _MANIFEST).write_bytes(msgspec.json.encode(kept))
        crash_point("build_before_keep")
        unfinished.rename(place / manifest.generation)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    # Whoever reads an older one has it mapped.
    _remove(folder for folder in _folders(place) if folder.name < manifest.generation)
    _remove(left for left in place.glob(f"{_UNFINISHED}*") if _age_seconds(left) > _DEAD_SECONDS)


def _folders(place: Path) -> Iterable[Path]:
    if not place.is_dir():
        return []
    return [folder for folder in place.iterdir() if folder.is_dir() and not folder.name.startswith(".")]


def _age_seconds(folder: Path) -> float:
    with suppress(OSError):
        return time.time() - folder.stat().st_mtime
    return 0.0


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
