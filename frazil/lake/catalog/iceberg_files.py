"""Iceberg files as the store of the warehouse lists them: one spelling of addresses that engines spell differently."""

from __future__ import annotations

import gzip
import zlib

from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from frazil.storage import local_path

DAMAGED = (ValueError, KeyError, EOFError, zlib.error, gzip.BadGzipFile, ValidationError)
"""What reading a metadata file raises that is damaged or incomplete."""


def path_of(location: str) -> str:
    """The path of a file address, in any of its spellings, as the file system lists it."""
    if location.startswith("s3:"):
        return location.partition("://")[2]
    return str(local_path(location))


def address_of(path: str, *, like: str) -> str:
    """The address of a listed path, in the scheme of another address of the same store."""
    return f"s3://{path}" if like.startswith("s3:") else f"file://{path}"


def file_system(io: FileIO, location: str) -> FileSystem:
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, _ = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, netloc)


def listed(io: FileIO, location: str, *, below: bool) -> list[FileInfo]:
    """What lies in a folder, or in all folders below it too; nothing where there is none."""
    selector = FileSelector(path_of(location).rstrip("/"), recursive=below, allow_not_found=True)
    found: list[FileInfo] = file_system(io, location).get_file_info(selector)
    return found
