"""Local copies of artifacts: fetched into a temporary folder, verified, then renamed.

What is there under its name is whole. A file that another local generation has already is linked instead of fetched.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from frazil.crash import crash_point
from frazil.errors import Unavailable
from frazil.serving.artifacts.manifest import (
    MANIFEST,
    ArtifactFile,
    Manifest,
    ManifestUnreadable,
    decode_manifest,
    seal_of,
)
from frazil.serving.artifacts.register import ArtifactEntry
from frazil.serving.artifacts.verify import ArtifactRefused, Fault, verify_artifact
from frazil.serving.artifacts.write import hashed
from frazil.storage import (
    FolderLock,
    Objects,
    exclusive,
    remove_if_unheld,
    remove_unheld,
    sync_files,
    translated_disk_errors,
)

_FETCHING = ".fetch-"
_ROOM_BYTES = 16 << 20


@dataclass(frozen=True)
class LocalCopy:
    """An artifact on the local disk, held: nobody removes it before it is released."""

    folder: Path
    manifest: Manifest
    hold: FolderLock
    fetched_bytes: int = 0
    linked_bytes: int = 0

    def release(self) -> None:
        self.hold.release()


class LocalCopies:
    """The copies of one table's artifacts below a folder. Processes on one machine may share it."""

    def __init__(self, cache: Path, objects: Objects, table: str, *, engines: Mapping[str, str] | None = None) -> None:
        self.folder = cache / table
        self._objects = objects
        self._table = table
        self._engines = engines

    def fetch(self, entry: ArtifactEntry) -> LocalCopy:
        """A verified copy of this generation, in place of nothing: what is served meanwhile stays where it is.

        Raises `ArtifactRefused` if the bucket's files are not what was published, `NotFound` if they are gone,
        `Unavailable` (`disk_full`) if there is no room; nothing of it is left then.
        """
        with translated_disk_errors(f"keep a copy in {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with exclusive(self.folder):
                return self._there(entry) or self._fetched(entry)

    def prune(self, keep: Collection[str]) -> list[str]:
        """Remove the copies that are not to be kept and that no process holds; returns their names."""
        if not self.folder.is_dir():
            return []
        with translated_disk_errors(f"remove copies in {self.folder}"):
            return remove_unheld(self.folder, keep=keep)

    def generations(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir() and not path.name.startswith("."))

    def _there(self, entry: ArtifactEntry) -> LocalCopy | None:
        """The copy that is there already, if it is still what it was."""
        folder = self.folder / entry.generation
        if not folder.is_dir():
            return None
        try:
            manifest = self._verified(folder, entry)
        except ArtifactRefused as refused:
            # Fetching again mends a damaged copy, but no version; and one that is held is still somebody's.
            if refused.code == "artifact_engine_version" or not remove_if_unheld(folder):
                raise
            return None
        return LocalCopy(folder, manifest, FolderLock.of(folder))

    def _fetched(self, entry: ArtifactEntry) -> LocalCopy:
        for left in self.folder.glob(f"{_FETCHING}*"):
            shutil.rmtree(left)  # whoever began it is dead: we are alone here
        place = self.folder / f"{_FETCHING}{uuid.uuid4().hex}"
        place.mkdir()
        crash_point("fetch_begun")
        try:
            fetched, linked = self._fill(place, entry)
            manifest = self._verified(place, entry)
            sync_files([str(place / file.path) for file in manifest.files] + [str(place / MANIFEST)], below=str(place))
            crash_point("fetch_verified")
            target = self.folder / entry.generation
            os.rename(place, target)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        sync_files([], below=str(self.folder))
        crash_point("fetch_renamed")
        return LocalCopy(target, manifest, FolderLock.of(target), fetched, linked)

    def _fill(self, place: Path, entry: ArtifactEntry) -> tuple[int, int]:
        raw = self._objects.get(f"{self._table}/{entry.generation}/{MANIFEST}")
        if seal_of(raw) != entry.seal:
            fault = Fault("artifact_manifest_damaged", "its manifest is not the one that was published", MANIFEST)
            raise ArtifactRefused(self.folder / entry.generation, [fault])
        manifest = decode_manifest(raw)
        ours = self._local_files()
        wanted = {file: ours.get(file.sha256) for file in manifest.files}
        self._must_have_room(sum(file.size for file, local in wanted.items() if local is None))
        (place / MANIFEST).write_bytes(raw)
        linked = 0
        for file, local in wanted.items():
            path = place / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if local is not None and _linked(local, path, file):
                linked += file.size
            else:
                self._objects.get_file(f"{self._table}/{entry.generation}/{file.path}", path)
                # Two generations may share it. An empty one is a lock, which tantivy opens as if to write.
                path.chmod(0o400 if file.size else 0o600)
            crash_point("fetch_file_done")
        return manifest.size - linked, linked

    def _local_files(self) -> dict[str, Path]:
        """The files of the other local generations, by hash."""
        found: dict[str, Path] = {}
        for generation in self.generations():
            folder = self.folder / generation
            try:
                manifest = decode_manifest((folder / MANIFEST).read_bytes())
            except (OSError, ManifestUnreadable):
                continue
            found |= {file.sha256: folder / file.path for file in manifest.files}
        return found

    def _must_have_room(self, needed: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < needed + _ROOM_BYTES:
            raise Unavailable(
                f"the artifact needs {needed >> 20} MB in {self.folder}, and {free >> 20} MB are free",
                code="disk_full",
                hint="make room on that disk, or keep copies elsewhere; what is served stays",
            )

    def _verified(self, folder: Path, entry: ArtifactEntry) -> Manifest:
        return verify_artifact(
            folder, table=self._table, generation=entry.generation, seal=entry.seal, engines=self._engines
        )


def _linked(local: Path, path: Path, file: ArtifactFile) -> bool:
    """Link it, if it is still what its own manifest says; a copy that has rotted is fetched again."""
    try:
        os.link(local, path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EMLINK):
            return False
        raise
    (found,) = hashed(path.parent, [path.name])
    if found.sha256 == file.sha256:
        return True
    path.unlink()
    return False
