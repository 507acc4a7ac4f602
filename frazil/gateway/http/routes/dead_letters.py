"""/v1/tables/{table}/dead-letters: events that could not be committed, and sending them again after repair."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import Conflict, InvalidInput
from frazil.events.decoding import NDJSON, event_as_sent
from frazil.gateway.gateway import Gateway
from frazil.gateway.http.authorization import admin_only, place_of, whole_table_only
from frazil.gateway.http.bodies import json_body
from frazil.gateway.http.connected import check_connected, counted
from frazil.gateway.http.operation import (
    BODY,
    FORBIDDEN,
    PARAMETER,
    TABLE,
    Errors,
    Fields,
    Integers,
    JsonObjects,
    Parameter,
    exactly,
    fields,
    operation,
    route,
)
from frazil.gateway.http.query_parameters import only, table_of, whole_number
from frazil.gateway.http.responses import answer
from frazil.lake.catalog import LakeTable
from frazil.lake.derived import dead_letters_table, read_dead_letters, remove_dead_letters

Letter = dict[str, Any]
Letters = list[Letter]
_MOST = 10_000
_CHUNK_EVENTS = 500
_CHUNK_BYTES = 4 << 20
_ERRORS: Errors = {409: ("is_a_history", "not_streamed"), 422: ("bad_resend",), 503: ("busy",)}


def routes(gateway: Gateway) -> list[Route]:
    return [
        route("GET", "/v1/tables/{table}/dead-letters", list_letters, gateway),
        route("POST", "/v1/tables/{table}/dead-letters/resend", resend, gateway),
        route("POST", "/v1/tables/{table}/dead-letters/discard", discard, gateway),
    ]


@operation(
    "The events of a table that could not be committed",
    "tables",
    {200: exactly(table=str, total=int, dead_letters=JsonObjects)},
    FORBIDDEN,
    TABLE,
    PARAMETER,
    query=(Parameter("limit", int),),
)
async def list_letters(gateway: Gateway, request: Request) -> Response:
    """In the order of their positions, for who may read all of the table."""
    only(request, "limit")
    limit = whole_number(request, "limit", default=100, most=_MOST)
    name = table_of(request)
    whole_table_only(request, name)
    table = await gateway.directory.table(name)
    letters = await asyncio.to_thread(partial(read_dead_letters, gateway.lake, table.name, limit=limit))
    of_table = await asyncio.to_thread(dead_letters_table, gateway.lake, table.name)
    total = 0 if of_table is None else of_table.rows
    return counted(request, answer({"table": table.spec.short_name, "total": total, "dead_letters": letters}))


@operation(
    "Publish dead letters again",
    "tables",
    {200: exactly(table=str, resent=int, left=int, refused=JsonObjects)},
    FORBIDDEN,
    BODY,
    TABLE,
    _ERRORS,
    body=Fields(optional={"positions": Integers | None}),
)
async def resend(gateway: Gateway, request: Request) -> Response:
    """Publish them again under their ids, all or those at `positions`; what is taken leaves the dead letters."""
    admin_only(request)
    only(request)
    name = table_of(request)
    wanted = _positions(await json_body(request))
    letters, chosen = await _chosen(gateway, name, wanted)
    resent = 0
    refused: Letters = []
    for chunk in _chunks(chosen[:_MOST]):
        taken, wrong = await _publish(gateway, name, chunk, request)
        refused += wrong
        keys = [(one["stream"], one["position"]) for one in taken]
        resent += await asyncio.to_thread(remove_dead_letters, gateway.lake, name, keys) if keys else 0
    if resent:
        gateway.journal.append("dead_letters_resent", table=name, events=resent)
    short = name.removeprefix("main.")
    left = len(letters) - resent
    return answer({"table": short, "resent": resent, "left": left, "refused": refused})


@operation(
    "Take dead letters out for good",
    "tables",
    {200: exactly(table=str, discarded=int, left=int)},
    FORBIDDEN,
    BODY,
    TABLE,
    _ERRORS,
    body=fields(positions=Integers),
)
async def discard(gateway: Gateway, request: Request) -> Response:
    """Take those at `positions` out for good, without sending them."""
    admin_only(request)
    only(request)
    name = table_of(request)
    wanted = _positions(await json_body(request))
    if not wanted:
        raise InvalidInput("name the `positions` to discard", code="bad_resend", hint='{"positions": [2097153]}')
    letters, chosen = await _chosen(gateway, name, wanted)
    keys = [(one["stream"], one["position"]) for one in chosen]
    gone = await asyncio.to_thread(remove_dead_letters, gateway.lake, name, keys)
    gateway.journal.append("dead_letters_discarded", table=name, events=gone, ids=[o["id"] for o in chosen])
    return answer({"table": name.removeprefix("main."), "discarded": gone, "left": len(letters) - gone})


async def _chosen(gateway: Gateway, name: str, wanted: set[int] | None) -> tuple[Letters, Letters]:
    """All dead letters, and of the settled ones those that are wanted."""
    # With this look, the writers forget the ids of dead letters.
    await gateway.directory.refresh()
    fed = await gateway.directory.fed(name)
    letters = await asyncio.to_thread(read_dead_letters, gateway.lake, name)
    settled = [one for one in letters if _is_settled(one, fed)]
    return letters, [one for one in settled if wanted is None or one["position"] in wanted]


async def _publish(gateway: Gateway, name: str, chunk: Sequence[Letter], request: Request) -> tuple[Letters, Letters]:
    """Those that were taken, and why the others were not."""
    body = b"\n".join(event_as_sent(letter) for letter in chunk)
    try:
        await gateway.ingest(
            name,
            body,
            NDJSON[0],
            urgent=False,
            place=place_of(request),
            check_caller=partial(check_connected, request),
        )
        return [*chunk], []
    except (InvalidInput, Conflict) as error:
        if len(chunk) == 1:
            return [], [{"position": chunk[0]["position"], "id": chunk[0]["id"], **error.body()}]
    taken: Letters = []
    refused: Letters = []
    for letter in chunk:
        good, wrong = await _publish(gateway, name, [letter], request)
        taken += good
        refused += wrong
    return taken, refused


def _positions(body: Any) -> set[int] | None:
    hint = '{"positions": [2097153]}, or {} for all'
    if not isinstance(body, dict) or body.keys() - {"positions"}:
        raise InvalidInput("the body is {positions?}", code="bad_resend", hint=hint)
    positions = body.get("positions")
    if positions is None:
        return None
    if not isinstance(positions, list) or not all(type(one) is int for one in positions):
        raise InvalidInput("`positions` is a list of whole numbers", code="bad_resend", hint=hint)
    return set(positions)


def _is_settled(letter: Letter, fed: LakeTable) -> bool:
    """Whether the watermark is over it. Before that, the pipeline may still have to find it among the dead letters."""
    return bool(letter["stream"] != fed.stream_identity or letter["position"] < fed.watermark)


def _chunks(letters: Sequence[Letter]) -> Iterator[Letters]:
    chunk: Letters = []
    size = 0
    for letter in letters:
        if chunk and (len(chunk) >= _CHUNK_EVENTS or size + len(letter["data"]) > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(letter)
        size += len(letter["data"])
    if chunk:
        yield chunk
