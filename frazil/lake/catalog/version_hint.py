"""Version hint: readers without a catalog find the newest state of a table by its folder.

Three readers, one rule: `metadata/version-hint.text` holds a number N, and `metadata/v<N>.metadata.json` is the table.
DuckDB and PyIceberg take the file's text as it is, so that it ends without a line break. Spark looks further, from N to
N + 1 and on for as long as there are such files: a copy must be whole when it appears, and no number comes back.

The copies are nobody's metadata log. Commits and their clean-up neither read nor delete them, and they stay behind the
table until the next export.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.serializers import Compressor

from frazil.errors import Unavailable
from frazil.lake.catalog.lake import translated
from frazil.lake.catalog.table import LakeTable
from frazil.storage import local_path, sync_files

HINT_FILE = "version-hint.text"
KEPT_COPIES = 3
"""The newest copy and two before it: a reader that has just read the hint still finds what it names."""


@dataclass(frozen=True)
class ExportHint:
    """Where other tools open the table, and how."""

    table: str
    location: str
    """The table's folder: a path on this machine, or an `s3://` address."""
    version: int
    metadata: str
    """The copy that the hint names."""
    hint_file: str
    commands: dict[str, str]
    """Ready to run: `duckdb` in a shell, `pyiceberg` and `spark` in Python."""


def export_hint(table: LakeTable) -> ExportHint:
    """Let the table's folder name the state of `table`; the same state again writes nothing.

    The copy is written before the hint that names it, so that every reader finds a whole state at each moment. Two
    exports of a table at once are both right, and the later hint stays.
    """
    with translated(f"export {table.name}"):
        folder = HintFolder(table.iceberg.io, f"{table.iceberg.location().rstrip('/')}/metadata")
        state = _state(table)
        named = folder.named_version()
        if named is None or folder.read(_copy(named)) != state:
            version = folder.free_version(after=named or 0)
            folder.write(_copy(version), state)
            folder.write(HINT_FILE, str(version).encode())
            folder.forget_copies(before=version - KEPT_COPIES + 1)
        else:
            version = named
    location = _place(table.iceberg.location().rstrip("/"))
    return ExportHint(
        table=table.spec.short_name,
        location=location,
        version=version,
        metadata=f"{location}/metadata/{_copy(version)}",
        hint_file=f"{location}/metadata/{HINT_FILE}",
        commands=_commands(location),
    )


@dataclass(frozen=True)
class HintFolder:
    """The metadata folder of a table, on a disk or in an object store."""

    io: FileIO
    url: str

    def named_version(self) -> int | None:
        """The version that the hint names; None where there is none, or one that is not ours to understand."""
        text = self.read(HINT_FILE)
        return int(text) if text is not None and text.isdigit() and len(text) < 10 else None

    def free_version(self, *, after: int) -> int:
        """The next number without a copy. Its follower is free too, or Spark would go on to that one."""
        version = after + 1
        while self._has(_copy(version)) or self._has(_copy(version + 1)):
            version += 1
        return version

    def read(self, name: str) -> bytes | None:
        try:
            with self.io.new_input(f"{self.url}/{name}").open() as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Whole or not at all: an object store does that by itself, on a disk a rename does."""
        url = f"{self.url}/{name}"
        if url.startswith("s3:"):
            with self.io.new_output(url).create(overwrite=True) as file:
                file.write(content)
            return
        path = local_path(url)
        draft = path.with_name(f"{name}.{os.getpid()}-{os.urandom(4).hex()}.draft")
        try:
            draft.write_bytes(content)
            sync_files([str(draft)])
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        _checksum(path).unlink(missing_ok=True)
        sync_files([str(path)])

    def forget_copies(self, *, before: int) -> None:
        """Delete older copies, down to the first one that is gone already."""
        version = before - 1
        while version > 0 and self._has(_copy(version)):
            url = f"{self.url}/{_copy(version)}"
            with suppress(FileNotFoundError):  # another export was quicker
                self.io.delete(url)
            if not url.startswith("s3:"):
                _checksum(local_path(url)).unlink(missing_ok=True)
            version -= 1

    def _has(self, name: str) -> bool:
        return bool(self.io.new_input(f"{self.url}/{name}").exists())


def _state(table: LakeTable) -> bytes:
    """The metadata file, byte for byte, decompressed: the name of the copy does not name a compression."""
    location = table.metadata_location
    try:
        with table.iceberg.io.new_input(location).open() as file:
            return bytes(Compressor.get_compressor(location).stream_decompressor(file).read())
    except FileNotFoundError as error:
        raise Unavailable(
            f"{table.name} has moved on by many commits since it was looked at", code="table_moved_on", hint="try again"
        ) from error


def _copy(version: int) -> str:
    return f"v{version}.metadata.json"


def _checksum(path: Path) -> Path:
    """Hadoop's checksum of a file that Spark wrote here: left beside other content, Spark would refuse to read it."""
    return path.with_name(f".{path.name}.crc")


def _place(url: str) -> str:
    return url if url.startswith("s3:") else str(local_path(url))


def _commands(location: str) -> dict[str, str]:
    in_sql = location.replace("'", "''")
    scan = f"INSTALL iceberg; LOAD iceberg; FROM iceberg_scan('{in_sql}') LIMIT 10"
    quoted = shlex.quote(scan) if set(scan) & set('"$`\\!') else f'"{scan}"'
    return {
        "duckdb": f"duckdb -c {quoted}",
        "pyiceberg": (
            "from pyiceberg.table import StaticTable; "
            f"print(StaticTable.from_metadata({location!r}).scan(limit=10).to_arrow())"
        ),
        "spark": f'spark.read.format("iceberg").load({location!r}).show(10)',
    }
