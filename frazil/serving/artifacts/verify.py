"""Verification: nothing of an artifact is served before every byte of it is what its builder wrote.

The chain begins at the registry: its seal proves the manifest, the manifest proves every file, then the counts
and canaries of the engines are checked.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from frazil.errors import FrazilError
from frazil.serving.artifacts.contents import CHUNKS, ROWS, VECTORS, Contents
from frazil.serving.artifacts.engine_versions import running_engines, unreadable
from frazil.serving.artifacts.manifest import MANIFEST, Manifest, ManifestUnreadable, Seal, decode_manifest, seal_of
from frazil.serving.artifacts.parts.part import ArtifactPart
from frazil.serving.artifacts.write import hashed

# tantivy leaves an empty lock file wherever it opens an index, be it only to read.
_LOCKS = re.compile(r"\.tantivy-\w+\.lock")


@dataclass(frozen=True)
class Fault:
    """One reason not to serve an artifact. Codes are stable: `artifact_…`."""

    code: str
    reason: str
    file: str = ""


class ArtifactRefused(FrazilError):
    """`details` has every fault that was found; the code is that of the first."""

    code = "artifact_refused"

    def __init__(self, folder: Path, faults: Sequence[Fault]) -> None:
        first = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(
            f"the artifact {folder.name} is not served: {first.reason}{more}",
            hint="fetch it again, roll back, or build a new one",
            code=first.code,
            details=[asdict(fault) for fault in faults],
        )
        self.faults = tuple(faults)


def verify_artifact(
    folder: Path,
    *,
    table: str,
    generation: str | None = None,
    seal: Seal | None = None,
    parts: Sequence[ArtifactPart] = (),
    engines: Mapping[str, str] | None = None,
) -> Manifest:
    """The manifest of the artifact in this folder, if all is well; else `ArtifactRefused`.

    Without a `seal` the manifest is only as good as the folder. `parts` are opened, counted and
    checked by their canaries; without them only files are looked at.
    """
    manifest, faults = inspect(folder, table=table, generation=generation, seal=seal, parts=parts, engines=engines)
    if faults or manifest is None:
        raise ArtifactRefused(folder, faults)
    return manifest


def inspect(
    folder: Path,
    *,
    table: str,
    generation: str | None = None,
    seal: Seal | None = None,
    parts: Sequence[ArtifactPart] = (),
    engines: Mapping[str, str] | None = None,
) -> tuple[Manifest | None, list[Fault]]:
    """All that is wrong with it. What rests on something that is wrong is not looked at: it could only mislead."""
    try:
        manifest = _manifest(folder, seal)
    except ManifestUnreadable as error:
        return None, [Fault(error.code, error.message, MANIFEST)]
    faults = list(_wrong_artifact(manifest, table, generation))
    here = running_engines() if engines is None else engines
    faults += [Fault("artifact_engine_version", reason) for _, reason in unreadable(manifest.engines, here)]
    if not faults:
        faults += _wrong_files(folder, manifest)
    if not faults:
        faults += _wrong_counts(folder, manifest)
    if not faults:
        faults += [fault for part in parts for fault in _wrong_part(folder, manifest, part)]
    return manifest, faults


def _manifest(folder: Path, seal: Seal | None) -> Manifest:
    try:
        raw = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise ManifestUnreadable("it has no manifest", code="artifact_manifest_missing") from error
    if seal is not None and seal_of(raw) != seal:
        raise ManifestUnreadable("its manifest is not the one that was published")
    return decode_manifest(raw)


def _wrong_artifact(manifest: Manifest, table: str, generation: str | None) -> Iterator[Fault]:
    if manifest.table != table:
        yield Fault("artifact_other_table", f"it is an artifact of {manifest.table}, not of {table}")
    if generation is not None and manifest.generation != generation:
        yield Fault("artifact_other_generation", f"it is the generation {manifest.generation}, not {generation}")
    for path in {ROWS, CHUNKS, VECTORS} - {file.path for file in manifest.files}:
        yield Fault("artifact_file_missing", f"its manifest names no {path}", path)


def _wrong_files(folder: Path, manifest: Manifest) -> Iterator[Fault]:
    listed = {file.path: file for file in manifest.files}
    found = {path.relative_to(folder).as_posix(): path.lstat() for path in folder.rglob("*")}
    there = {path: seen for path, seen in found.items() if not stat.S_ISDIR(seen.st_mode)}
    whole = []
    for path, file in listed.items():
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            yield Fault("artifact_manifest_damaged", f"its manifest names {path}, which is not in its folder", path)
        elif path not in there or not stat.S_ISREG(there[path].st_mode):
            yield Fault("artifact_file_missing", f"{path} is missing", path)
        elif (size := there[path].st_size) != file.size:
            yield Fault("artifact_file_size", f"{path} has {size} bytes instead of {file.size}", path)
        else:
            whole.append(path)
    for path in there.keys() - listed.keys() - {MANIFEST}:
        if not (_LOCKS.fullmatch(PurePosixPath(path).name) and there[path].st_size == 0):
            yield Fault("artifact_file_extra", f"{path} does not belong to it", path)
    # In one thread: a server goes on answering meanwhile, and hashing on both of two cores is what its slowest answers
    # waited for.
    for file in hashed(folder, whole, threads=1):
        if file.sha256 != listed[file.path].sha256:
            yield Fault("artifact_file_hash", f"{file.path} is not what its builder wrote", file.path)


def _wrong_counts(folder: Path, manifest: Manifest) -> Iterator[Fault]:
    counts = manifest.counts
    contents = Contents(folder)
    shape = (counts.vectors, manifest.model.dims if manifest.model else 0)
    if contents.vectors.shape != shape:
        yield Fault("artifact_counts", f"{VECTORS} has the shape {contents.vectors.shape} instead of {shape}", VECTORS)
    for path, held, wanted in (
        (ROWS, contents.rows.num_rows, counts.rows),
        (CHUNKS, contents.chunks.num_rows, counts.chunks),
    ):
        if held != wanted:
            yield Fault("artifact_counts", f"{path} holds {held} instead of {wanted}", path)
    if manifest.model is not None and counts.chunks != counts.vectors + counts.quarantined:
        yield Fault("artifact_counts", f"of {counts.chunks} chunks {counts.vectors} have a vector, unexplained")


def _wrong_part(folder: Path, manifest: Manifest, part: ArtifactPart) -> Iterator[Fault]:
    try:
        opened = part.open(folder)
    except Exception as error:  # engines raise what they like; whatever it is, the part cannot serve
        yield Fault("artifact_part_unreadable", f"the part {part.name!r} does not open: {error}")
        return
    try:
        wanted = getattr(manifest.counts, part.holds)
        if opened.held != wanted:
            yield Fault("artifact_counts", f"the part {part.name!r} holds {opened.held} {part.holds} of {wanted}")
        for canary in manifest.canaries:
            if canary.part == part.name and (found := opened.answer(canary)) != canary.expected:
                yield Fault("artifact_canary", f"the part {part.name!r} answers {found}, not {canary.expected}")
    except Exception as error:
        yield Fault("artifact_part_unreadable", f"the part {part.name!r} does not answer: {error}")
    finally:
        opened.close()
