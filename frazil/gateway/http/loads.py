"""POST /v1/loads/csv, /v1/loads/postgres, /v1/tables/{table}/loads: whole sources become rows, by the pipeline."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from frazil.access import Forbidden
from frazil.errors import InvalidInput, TooLarge, Unavailable
from frazil.gateway.http.answers import answer
from frazil.gateway.http.bodies import IDLE_SECONDS, BodyReader, BodyTimeout, json_body
from frazil.gateway.http.gateway import Gateway
from frazil.gateway.http.parameters import only, table_of, whole_number
from frazil.gateway.http.parts import Parts
from frazil.gateway.http.provenance import loads_told
from frazil.gateway.http.scopes import admin_only, identity_of, ingest_only, no_such_table
from frazil.lake import ask_job, open_jobs
from frazil.pipeline.csv.ask import CsvLoad, parse_load
from frazil.pipeline.postgres.ask import parse_postgres
from frazil.storage import sync_files

KIND = "csv"
_TEXTS = ("mode", "delimiter", "quote", "escape", "encoding", "max_bad", "source")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_LEFT_SECONDS = 86_400
_MOST_LOADS = 10_000
_ROOM_BYTES = 500_000_000
"""An upload stops where the disk would have less left than this."""


class Loads:
    def __init__(self, gateway: Gateway, bodies: BodyReader) -> None:
        self._gateway = gateway
        self._bodies = bodies
        self._parts = Parts(gateway)

    async def csv(self, request: Request) -> Response:
        """Files that are on the pipeline's machine. It reads them with its own rights: for admins."""
        admin_only(request)
        only(request)
        body = await json_body(request, self._bodies)
        load = parse_load({**body, "uploaded": False} if isinstance(body, dict) else body)
        for path in load.files:
            if not os.path.isabs(path):
                raise InvalidInput(f"{path[:200]!r} is no absolute path", code="bad_load", hint="write it from / on")
        return await self._ask(request, KIND, load.table, load.params())

    async def postgres(self, request: Request) -> Response:
        """An archive or a refresh from a source that the pipeline's settings name."""
        admin_only(request)
        only(request)
        asked = parse_postgres(await json_body(request, self._bodies))
        return await self._ask(request, "postgres", asked.source, asked.params())

    async def upload(self, request: Request) -> Response:
        """The body is the file, plain or packed, up to `ingest.max_upload_bytes`."""
        name = table_of(request)
        ingest_only(request, name)
        only(request, "filename", "header", "null_words", *_TEXTS)
        folder = self._gateway.uploads
        if folder is None:
            raise Unavailable("this gateway takes no uploads", code="no_uploads")
        self._parts.pipeline_must_be_there()
        path = folder / uuid.uuid4().hex / _file_name(request.query_params.get("filename", ""))
        wanted = parse_load({"table": name, "files": [str(path)], "uploaded": True, **_options(request)})
        await self._may_load(request, wanted)
        try:
            await self._receive(request, path)
            await asyncio.to_thread(sync_files, [str(path)], below=str(folder))
            return await self._ask(request, KIND, wanted.table, wanted.params())
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, path.parent, ignore_errors=True)
            raise

    async def list(self, request: Request) -> Response:
        """The newest loads of a table, for who may read all of its rows."""
        only(request, "limit")
        name = table_of(request)
        grant = identity_of(request).read_grant(name)
        if grant is None:
            raise no_such_table(name)
        if grant.filters:
            raise Forbidden("this is for who may read all rows of the table", hint="ask whoever gave you the token")
        limit = whole_number(request, "limit", default=100, most=_MOST_LOADS)
        await self._gateway.directory.refresh()
        table = await self._gateway.directory.table(name)
        told = await asyncio.to_thread(loads_told, self._gateway.lake.registry, table, limit=limit)
        return answer({"table": table.spec.short_name, "loads": told})

    async def _may_load(self, request: Request, load: CsvLoad) -> None:
        """Who may publish to a table may add rows to it; taking away those of others, and making it, is for admins."""
        if load.mode == "replace":
            admin_only(request)
        if not identity_of(request).is_admin:
            await self._gateway.directory.table(load.table)

    async def _receive(self, request: Request, path: Path) -> None:
        most = int(self._gateway.settings.max_upload_bytes)
        path.parent.mkdir(parents=True, mode=0o700)
        size = 0
        chunks = request.stream().__aiter__()
        with await asyncio.to_thread(open, path, "xb") as file:
            while True:
                try:
                    async with asyncio.timeout(IDLE_SECONDS):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise BodyTimeout("the file stopped arriving", hint="send it again") from error
                except ClientDisconnect as error:
                    raise InvalidInput("the connection ended before the file did", code="body_incomplete") from error
                size += len(chunk)
                if size > most:
                    raise TooLarge(
                        f"the file has more than {most:,} bytes",
                        code="body_too_large",
                        hint="pack it, split it, or raise ingest.max_upload_bytes",
                    )
                await asyncio.to_thread(_write, file, chunk)

    async def _ask(self, request: Request, kind: str, subject: str, params: dict[str, Any]) -> Response:
        self._parts.pipeline_must_be_there()
        by = identity_of(request).id
        job = await asyncio.to_thread(ask_job, self._gateway.lake.registry, kind, subject, params, asked_by=by)
        return answer({"id": job.id, "state": "waiting", "subject": subject.removeprefix("main.")}, 202)


def _write(file: BinaryIO, chunk: bytes) -> None:
    if shutil.disk_usage(os.path.dirname(file.name)).free < _ROOM_BYTES + len(chunk):
        raise Unavailable("the disk has no room for the file", code="disk_full", hint="make room, then send it again")
    file.write(chunk)


def _options(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {name: request.query_params[name] for name in _TEXTS if name in request.query_params}
    if "header" in request.query_params:
        given["header"] = {"true": True, "false": False}.get(request.query_params["header"], "?")
    if "null_words" in request.query_params:
        given["null_words"] = request.query_params["null_words"].split(",")
    return given


def _file_name(given: str) -> str:
    """The last part of what the caller calls the file, in plain letters."""
    return _ODD.sub("_", given.replace("\\", "/").rpartition("/")[2]).lstrip(".")[-100:] or "upload.csv"


def forget_left_uploads(gateway: Gateway) -> None:
    """Remove uploads of long ago that no open job names: a kill fell between the file and its job."""
    folder = gateway.uploads
    if folder is None or not folder.is_dir():
        return
    wanted = {Path(path).parent for job in open_jobs(gateway.lake.registry, [KIND]) for path in job.params["files"]}
    for left in folder.iterdir():
        try:
            if left not in wanted and left.stat().st_mtime < time.time() - _LEFT_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:
            continue
