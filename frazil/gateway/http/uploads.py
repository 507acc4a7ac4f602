"""Uploads: files on their way to a load, and how much of the disk those of one token may take.

A file is written as it arrives, into a folder of its own, and its job names it. Whatever ends the request before the
job is asked for takes the folder away. The pipeline deletes the file when its load is over; what a kill or a load that
was given up leaves behind is named by no open job, and goes after an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from starlette.requests import ClientDisconnect, Request

from frazil.access import Identity
from frazil.errors import InvalidInput, TooLarge, Unavailable
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.bodies import IDLE_SECONDS, BodyTimeout
from frazil.registry import Job, open_jobs
from frazil.requests import CSV
from frazil.storage import sync_files, translated_disk_errors

LEFT_SECONDS = 3600.0
_PATIENCE_SECONDS = 120.0
_SLOWEST_BYTES_PER_SECOND = 16 << 10
"""A file may take `_PATIENCE_SECONDS`, and a second more for each so many bytes."""
_LOOK_BYTES = 64 << 20
"""So often an upload looks again at what else of its token waits."""
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


class TooManyUploads(Unavailable):
    status = 429


@dataclass(eq=False)
class _Arrival:
    """A file that is being sent."""

    path: Path
    identity: Identity
    size: int = 0
    began: float = field(default_factory=time.monotonic)


class Uploads:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._arriving: set[_Arrival] = set()

    def place(self, given: str) -> Path:
        """Where the next file goes, which the caller calls so."""
        folder = self._gateway.uploads
        if folder is None:
            raise Unavailable("this gateway takes no uploads", code="no_uploads")
        return folder / uuid.uuid4().hex / file_name(given)

    @asynccontextmanager
    async def received(self, request: Request, path: Path, identity: Identity) -> AsyncIterator[None]:
        """The whole file is at `path`, on the disk; it is gone again if the block fails."""
        arrival = _Arrival(path, identity)
        self._arriving.add(arrival)
        try:
            await self._receive(request, arrival)
            await asyncio.to_thread(sync_files, [str(path)], below=str(self._gateway.uploads))
            yield
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, path.parent, ignore_errors=True)
            raise
        finally:
            self._arriving.discard(arrival)

    async def _receive(self, request: Request, arrival: _Arrival) -> None:
        own = await self._open_jobs(arrival.identity)
        self._check_number(arrival.identity, len(own))
        waiting, looked_at = await asyncio.to_thread(_size_of, own), 0
        arrival.path.parent.mkdir(parents=True, mode=0o700)
        chunks = request.stream().__aiter__()
        with await asyncio.to_thread(open, arrival.path, "xb") as file:
            while (chunk := await _next_chunk(chunks)) is not None:
                arrival.size += len(chunk)
                if arrival.size - looked_at > _LOOK_BYTES:
                    looked_at = arrival.size
                    waiting = await asyncio.to_thread(_size_of, await self._open_jobs(arrival.identity))
                self._check_size(arrival, waiting)
                await asyncio.to_thread(_write, file, chunk, self._gateway.min_free_bytes)
            with translated_disk_errors("take in the file"):
                await asyncio.to_thread(file.flush)

    async def _open_jobs(self, identity: Identity) -> list[Job]:
        jobs = await asyncio.to_thread(open_jobs, self._gateway.lake.registry)
        return [job for job in jobs if job.asked_by == identity.id]

    def _check_number(self, identity: Identity, waiting: int) -> None:
        """A token may not have too many jobs open, those included whose files are arriving."""
        most = self._gateway.settings.max_open_jobs
        if not identity.is_admin and waiting + len(self._arrivals_of(identity)) > most:
            raise TooManyUploads(
                f"{waiting:,} jobs of this token are open, and at most {most:,} may be",
                code="too_many_jobs",
                hint="wait until some of them are done (GET /v1/jobs/{id}), or send several files as one",
                retry_after_seconds=10.0,
            )

    def _check_size(self, arrival: _Arrival, waiting: int) -> None:
        settings = self._gateway.settings
        if arrival.size > settings.max_upload_bytes:
            raise TooLarge(
                f"the file has more than {int(settings.max_upload_bytes):,} bytes",
                code="body_too_large",
                hint="pack it, split it, or raise ingest.max_upload_bytes",
            )
        taken = waiting + sum(one.size for one in self._arrivals_of(arrival.identity))
        if not arrival.identity.is_admin and taken > settings.max_waiting_upload_bytes:
            raise TooManyUploads(
                "the files of this token that wait for their loads have more than "
                f"{int(settings.max_waiting_upload_bytes):,} bytes",
                code="upload_quota",
                hint="wait until some are loaded, then send it again",
                retry_after_seconds=30.0,
            )
        if time.monotonic() - arrival.began > _PATIENCE_SECONDS + arrival.size / _SLOWEST_BYTES_PER_SECOND:
            raise BodyTimeout("the file arrives too slowly", hint="send it packed, or over a faster line")

    def _arrivals_of(self, identity: Identity) -> list[_Arrival]:
        return [one for one in self._arriving if one.identity.id == identity.id]


async def _next_chunk(chunks: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return await anext(chunks)
    except StopAsyncIteration:
        return None
    except TimeoutError as error:
        raise BodyTimeout("the file stopped arriving", hint="send it again") from error
    except ClientDisconnect as error:
        raise InvalidInput("the connection ended before the file did", code="body_incomplete") from error


def _write(file: BinaryIO, chunk: bytes, min_free_bytes: int) -> None:
    if shutil.disk_usage(os.path.dirname(file.name)).free < min_free_bytes + len(chunk):
        raise Unavailable("the disk has no room for the file", code="disk_full", hint="make room, then send it again")
    with translated_disk_errors("take in the file"):
        file.write(chunk)


def _size_of(jobs: list[Job]) -> int:
    """The bytes of the uploads that these jobs name, on the disk now."""
    size = 0
    for job in jobs:
        for path in job.params.get("files", ()) if job.params.get("uploaded") else ():
            with contextlib.suppress(OSError):
                size += os.stat(path).st_size
    return size


def file_name(given: str) -> str:
    """The last part of what the caller calls the file, in plain letters."""
    return _ODD.sub("_", given.replace("\\", "/").rpartition("/")[2]).lstrip(".")[-100:] or "upload.csv"


def forget_left_uploads(gateway: Gateway) -> None:
    """Remove uploads that no open job names and that nobody has written to for an hour."""
    folder = gateway.uploads
    if folder is None or not folder.is_dir():
        return
    # First the folders, then the jobs: an upload is there before its job is.
    left = [one for one in folder.iterdir() if _written_at(one) < time.time() - LEFT_SECONDS]
    wanted = {Path(path).parent for job in open_jobs(gateway.lake.registry, [CSV.name]) for path in job.params["files"]}
    for one in left:
        if one not in wanted:
            shutil.rmtree(one, ignore_errors=True)


def _written_at(folder: Path) -> float:
    try:
        return max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return time.time()
