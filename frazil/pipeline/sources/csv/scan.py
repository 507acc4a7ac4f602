"""Scan of a file: its hash, encoding, dialect and header, and the ranges that it can be cut into.

One sequential read finds the SHA-256 of the raw bytes, the encoding, the dialect, the header and ranges of whole
records. A plain UTF-8 file is not copied: its ranges point into it. Anything else is written once, as UTF-8, to a spool
folder, whose owner removes it after the load, and before the next one where a kill left it behind.

Memory is a few chunks and at most one record, however large the file is.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from frazil.errors import InvalidInput, NotFound
from frazil.pipeline.sources.csv.dialect import CsvOptions, Dialect
from frazil.pipeline.sources.csv.file_decoding import (
    HEAD_BYTES,
    UTF8_BOM,
    HashedFile,
    decoded,
    encoding_of,
    not_in_encoding,
    peek,
    unpacked,
    without_prefix,
)
from frazil.pipeline.sources.csv.range_splitter import NotUtf8, RangeSplitter
from frazil.pipeline.sources.csv.text_encodings import UTF8, known_encoding
from frazil.pipeline.sources.csv.text_ranges import CsvRange, FileMark, changed
from frazil.pipeline.sources.csv.unpacking import MAGIC_BYTES, UnpackBudget, compression_of, refuse_archives
from frazil.storage import translated_disk_errors

# Chunks that fit into the cache of a core: 460 MB/s, against 290 with chunks of 4 MB.
CHUNK_BYTES = 512 << 10
_LATIN1 = "iso8859-1"


@dataclass(frozen=True)
class CsvFile:
    """What a scan found out. `path` is what people call the file. `header` has the names as they are written, or is
    None where the first record is a row already; `width` is 0 for a file without any record."""

    path: str
    sha256: str
    mark: FileMark
    compression: str | None
    encoding: str
    dialect: Dialect
    header: tuple[str, ...] | None
    width: int
    lines: int
    ranges: tuple[CsvRange, ...]


def scan_file(
    path: Path,
    spool: Path,
    options: CsvOptions | None = None,
    *,
    name: str | None = None,
    budget: UnpackBudget | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> CsvFile:
    """Look through the whole file. `InvalidInput` where it cannot be read as CSV, `TooLarge` where it grows too far,
    `Conflict` where it was written to meanwhile; then nothing stays in the spool folder.

    `name` is what reports and errors call the file, its path where it has none; `budget` is that of its load.
    """
    options = options or CsvOptions()
    chunk_bytes = min(chunk_bytes, options.max_record_bytes, options.range_bytes)
    given = known_encoding(options.encoding) if options.encoding else None
    look = partial(_scan, path, spool, options, name or str(path), budget or UnpackBudget(), chunk_bytes)
    try:
        return look(given)
    except NotUtf8 as error:
        if given is not None:
            raise not_in_encoding(name or str(path), given, error.line) from None
    return look(_LATIN1)


def _scan(
    path: Path,
    spool: Path,
    options: CsvOptions,
    name: str,
    budget: UnpackBudget,
    chunk_bytes: int,
    encoding: str | None,
) -> CsvFile:
    with _opened(path, name) as file, ThreadPoolExecutor(1, thread_name_prefix="sha256") as hasher:
        mark = FileMark.of(os.fstat(file.fileno()))
        magic = os.pread(file.fileno(), MAGIC_BYTES, 0)
        refuse_archives(magic, name, None)
        compression = compression_of(magic)
        growth = budget.file(name, mark.size)
        hashed = HashedFile(file, hasher)
        found = unpacked(hashed, compression, chunk_bytes, name)
        head, chunks = peek(growth.counted(found) if compression else found, HEAD_BYTES)
        if compression:
            refuse_archives(head, name, compression)
        encoding = encoding or encoding_of(head)
        if encoding == UTF8:
            bom = len(UTF8_BOM) if head.startswith(UTF8_BOM) else 0
            chunks = without_prefix(chunks, bom)
        else:
            chunks = decoded(chunks, encoding, name)
        if encoding == UTF8 and compression is None:
            cutter = RangeSplitter(name, options, offset=bom)
            cutter.read(chunks)
            text, text_mark = str(path), mark
        else:
            with _spooled(spool) as copy:
                cutter = RangeSplitter(name, options, keep=partial(growth.write, copy), check_utf8=encoding == UTF8)
                cutter.read(chunks)
                with translated_disk_errors(f"unpack {name}"):
                    copy.flush()
                text, text_mark = copy.name, FileMark.of(os.fstat(copy.fileno()))
            growth.settle()
        sha256 = hashed.sha256()
        if not FileMark.of(os.fstat(file.fileno())) == mark == FileMark.of(_status(path, name)):
            raise changed(name)
    return CsvFile(
        path=name,
        sha256=sha256,
        mark=mark,
        compression=compression,
        encoding=encoding,
        dialect=cutter.dialect,
        header=cutter.header,
        width=cutter.width,
        lines=cutter.lines,
        ranges=tuple(
            CsvRange(text, *cut, text_mark, name, unclosed=cutter.unclosed and cut is cutter.cuts[-1])
            for cut in cutter.cuts
        ),
    )


def _opened(path: Path, name: str) -> BinaryIO:
    try:
        # Without waiting: a FIFO may have no writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {name}", code="no_such_file", hint="look at the path") from error
    except OSError as error:
        raise InvalidInput(
            f"{name} may not be read: {error.strerror}", code="not_readable", hint="give this user the right to"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput(f"{name} is not a regular file", code="not_a_file", hint="name a file, or a folder of them")
    return open(descriptor, "rb", buffering=0)


def _status(path: Path, name: str) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError as error:
        raise changed(name) from error


@contextmanager
def _spooled(folder: Path) -> Iterator[Any]:
    """A new file in the spool folder, which stays if the block ends well."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="csv-", suffix=".utf8", delete=False) as copy:
        try:
            yield copy
        except BaseException:
            os.unlink(copy.name)
            raise
