"""Writing of an artifact: one state of a table becomes an immutable folder, or nothing at all.

The manifest is the last file, and names the hash of every other. Whatever goes wrong before leaves no artifact.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from frazil.crash import crash_point
from frazil.errors import InvalidInput
from frazil.serving.artifacts.contents import (
    CHUNKS,
    ROWS,
    VECTORS,
    ArtifactSource,
    BuildRefused,
    Contents,
    write_contents,
)
from frazil.serving.artifacts.engine_versions import running_engines
from frazil.serving.artifacts.manifest import (
    MANIFEST,
    ArtifactColumn,
    ArtifactFile,
    Canary,
    Counts,
    Manifest,
    new_generation,
)
from frazil.serving.artifacts.parts.part import ArtifactPart
from frazil.storage import FolderLock, remove_unheld, sync_files, translated_disk_errors

_AT_ONCE = 2


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """A new, empty folder to build in, gone afterwards; folders of builders that died here are removed first."""
    with translated_disk_errors(f"make room for a build in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        remove_unheld(folder)
        place = folder / new_generation()
        hold = FolderLock.of_new(place)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        hold.release()


def write_artifact(
    source: ArtifactSource, folder: Path, parts: Sequence[ArtifactPart] = (), *, generation: str | None = None
) -> Manifest:
    """Write the artifact into this folder, which must be empty. If it raises, the folder is empty again."""
    with translated_disk_errors(f"build in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidInput(f"{folder} is not empty", hint="an artifact is built in a folder of its own")
        try:
            return _build(source, folder, parts, generation or new_generation())
        except BaseException:
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            raise


def _build(source: ArtifactSource, folder: Path, parts: Sequence[ArtifactPart], generation: str) -> Manifest:
    seconds: dict[str, float] = {}
    with _timed(seconds, "contents"):
        counts = write_contents(source, folder)
    crash_point("build_contents_written")
    contents = Contents(folder)
    paths = [ROWS, CHUNKS, VECTORS]
    canaries: list[Canary] = []

    def written(part: ArtifactPart) -> tuple[Sequence[str], Sequence[Canary]]:
        with _timed(seconds, part.name):
            found = part.write(folder, contents), _proven(part, folder, contents, counts)
        crash_point("build_part_written")
        return found

    # Words take Python's lock and vectors leave it, so that the two together take little longer than one.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for its_paths, its_canaries in pool.map(written, parts):
            paths += its_paths
            canaries += its_canaries
    with _timed(seconds, "hash"):
        files = hashed(folder, paths)
    here = running_engines()
    manifest = Manifest(
        table=source.table,
        generation=generation,
        built_at=datetime.now(UTC).isoformat(),
        cut=source.cut,
        schema=tuple(ArtifactColumn(column.name, str(column.type)) for column in source.schema),
        model=source.model,
        counts=counts,
        files=files,
        engines={name: here[name] for name in sorted({"pyarrow", *(part.engine for part in parts)})},
        index=source.index,
        canaries=tuple(canaries),
        seconds=seconds,
    )
    crash_point("build_before_manifest")
    unfinished = folder / f".{MANIFEST}"
    unfinished.write_bytes(manifest.encode())
    os.replace(unfinished, folder / MANIFEST)
    sync_files([str(folder / path) for path in (*paths, MANIFEST)], below=str(folder))
    return manifest


def _proven(part: ArtifactPart, folder: Path, contents: Contents, counts: Counts) -> Sequence[Canary]:
    """What was written is opened again: it must hold all that went in, and answer its canaries."""
    opened = part.open(folder)
    try:
        wanted = getattr(counts, part.holds)
        if opened.held != wanted:
            raise BuildRefused(
                f"{wanted} {part.holds} went into the part {part.name!r} and {opened.held} are in it",
                code="part_incomplete",
            )
        canaries = part.canaries(opened, contents)
        for canary in canaries:
            if (found := opened.answer(canary)) != canary.expected:
                raise BuildRefused(
                    f"the part {part.name!r} does not find what is in it: {found}, not {canary.expected}",
                    code="canary_failed",
                )
        return canaries
    finally:
        opened.close()


def hashed(folder: Path, paths: Sequence[str], *, threads: int = _AT_ONCE) -> tuple[ArtifactFile, ...]:
    """Size and hash of these files. Hashing leaves Python's lock, so that two cores do twice the work."""

    def of(path: str) -> ArtifactFile:
        with (folder / path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return ArtifactFile(path, file.tell(), digest)

    with ThreadPoolExecutor(threads) as pool:
        return tuple(pool.map(of, paths))


@contextlib.contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[step] = round(time.monotonic() - began, 3)
