"""Missing files of a table's current snapshot, found by one listing of its folder."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow.fs import FileType
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from frazil.lake.catalog.iceberg_files import listed, path_of


@dataclass(frozen=True)
class Missing:
    manifests: int = 0
    """Manifests and lists of them. Without one, what it names is not known."""
    files: int = 0
    example: str = ""

    @property
    def any(self) -> bool:
        return bool(self.manifests or self.files)


def find_missing_files(io: FileIO, metadata: TableMetadata) -> Missing:
    """What the current snapshot names and its folder has not."""
    current = metadata.current_snapshot()
    if current is None:
        return Missing()
    entries = listed(io, metadata.location, below=True)
    there = {entry.path for entry in entries if entry.type == FileType.File}
    if path_of(current.manifest_list) not in there:
        return Missing(manifests=1, example=current.manifest_list)
    manifests = list(current.manifests(io))
    lost = [manifest.manifest_path for manifest in manifests if path_of(manifest.manifest_path) not in there]
    gone = [
        entry.data_file.file_path
        for manifest in manifests
        if manifest.manifest_path not in lost
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        if path_of(entry.data_file.file_path) not in there
    ]
    return Missing(len(lost), len(gone), next(iter([*lost, *gone]), ""))
