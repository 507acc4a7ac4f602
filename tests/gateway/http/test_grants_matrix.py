"""Roles × tables × verbs: every cell is called, and answered as the matrix below says.

The matrix is written by hand: what each role may do with each table, beside the grants that are to have this effect.
What a call must answer follows from these letters alone, by the rules under it, and not by the code that is tested.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.access import parse_grants
from frazil.bus.memory import MemoryBus
from frazil.events import Token
from frazil.gateway.search.shelf_follower import FollowPace
from frazil.lake.catalog import Lake
from tests.gateway.http.harness import TOKEN, Running, event, running

NORTH = {"scope": "read:notes", "where": "item = 'north'", "mask": {"item": "hash"}}

# R: may read it, I: may write events to it, A: may do everything with it, -: must not learn whether it exists.
TABLES = ("notes", "orders", "sales.deals", "sales.leads", "absent", "sales.absent", "system.audit")
EXIST = ("notes", "orders", "sales.deals", "sales.leads")
MATRIX: dict[str, tuple[list[Any], str]] = {
    # role            grants                                           notes orders deals leads absent s.absent audit
    "admin":         (["admin"],                                       "A     A      A     A     A      A        A"),
    "admin and more": (["read:notes", "admin"],                        "A     A      A     A     A      A        A"),
    "sql alone":     (["sql"],                                         "-     -      -     -     -      -        -"),
    "reader of one": (["sql", "read:notes"],                           "R     -      -     -     -      -        -"),
    "full name":     (["sql", "read:main.notes"],                      "R     -      -     -     -      -        -"),
    "sees a part":   (["sql", NORTH],                                  "R     -      -     -     -      -        -"),
    "writer of one": (["ingest:orders"],                               "-     I      -     -     -      -        -"),
    "both on one":   (["sql", "read:orders", "ingest:orders"],         "-     RI     -     -     -      -        -"),
    "crossed":       (["sql", "read:notes", "ingest:orders"],          "R     I      -     -     -      -        -"),
    "reads sales":   (["sql", "read:sales.*"],                         "-     -      R     R     -      R        -"),
    "writes sales":  (["ingest:sales.*", "read:notes"],                "R     -      I     I     -      I        -"),
    "reads main":    (["sql", "read:main.*"],                          "R     R      -     -     R      -        -"),
    "reads all":     (["sql", "read:*"],                               "R     R      R     R     R      R        -"),
    "writes all":    (["ingest:*"],                                    "I     I      I     I     I      I        -"),
    "reads, writes": (["sql", "read:*", "ingest:sales.deals"],         "R     R      RI    R     R      R        -"),
    "auditor":       (["sql", "read:system.audit"],                    "-     -      -     -     -      -        R"),
    "for later":     (["sql", "read:absent", "ingest:sales.absent"],   "-     -      -     -     R      I        -"),
    "a longer name": (["read:notes2", "ingest:sales.deal"],            "-     -      -     -     -      -        -"),
}  # fmt: skip
SHUT_OUT = ("nobody", "made up", "expired", "revoked", "rotated away")

Call = Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]]


@dataclass(frozen=True)
class Verb:
    call: Call
    answers: dict[str, int | tuple[int, ...]]
    """By letter, for a table that exists. One that does not exist is a 404 to whoever would be let through."""
    makes: bool = False
    """Whether admins make the table by it."""


EVENT = {"events": [event("a")]}
ADMINS: dict[str, int | tuple[int, ...]] = {"-": 403, "R": 403, "I": 403, "RI": 403}
READERS: dict[str, int | tuple[int, ...]] = {"-": 404, "R": 200, "I": 200, "RI": 200, "A": 200}

# What is done with a table. To add a verb, say how it is called and what each letter gets.
VERBS: dict[str, Verb] = {
    "describe": Verb(lambda http, table: http.get(f"/v1/tables/{table}"), READERS),
    "visibility": Verb(lambda http, table: http.get("/v1/visibility", params={"token": mark_of(table)}), READERS),
    "ingest": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/events", json=EVENT),
        {"-": 404, "R": 403, "I": 202, "RI": 202, "A": 202},
    ),
    "alter": Verb(lambda http, table: http.patch(f"/v1/tables/{table}", json={"owner": "us"}), ADMINS | {"A": 200}),
    "undrop": Verb(lambda http, table: http.post(f"/v1/tables/{table}/undrop"), ADMINS | {"A": (404, 409)}),
    "repair": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/repair", json={"what": "nothing"}), ADMINS | {"A": 422}
    ),
    "table health": Verb(
        lambda http, table: http.get(f"/v1/tables/{table}/health"),
        # Who sees only a part of the rows must not learn from files how many there are.
        {"-": 404, "R": (200, 403), "I": 404, "RI": 200, "A": 200},
    ),
    "loads": Verb(
        lambda http, table: http.get(f"/v1/tables/{table}/loads"),
        {"-": 404, "R": (200, 403), "I": 404, "RI": 200, "A": 200},
    ),
    "maintain": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/maintenance", json={"what": "compact", "dry_run": True}),
        ADMINS | {"A": 200},
    ),
    "upload": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/loads", content=b"n\n1\n"),
        {"-": 404, "R": 403, "I": 202, "RI": 202, "A": 202},
        makes=True,
    ),
    "upload and replace": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/loads?mode=replace", content=b"n\n1\n"),
        {"-": 404, "R": 403, "I": 403, "RI": 403, "A": 202},
        makes=True,
    ),
    "build": Verb(lambda http, table: http.post(f"/v1/tables/{table}/build", json={}), ADMINS | {"A": (404, 422)}),
    "embed": Verb(lambda http, table: http.post(f"/v1/tables/{table}/embed", json={}), ADMINS | {"A": (404, 422)}),
    "embeddings": Verb(
        lambda http, table: http.get(f"/v1/tables/{table}/embeddings"),
        {"-": 404, "R": (200, 403), "I": 404, "RI": 200, "A": 200},
    ),
    "delete embeddings": Verb(
        lambda http, table: http.delete(f"/v1/tables/{table}/embeddings/minilm"), ADMINS | {"A": (404, 422)}
    ),
    "try": Verb(lambda http, table: http.post(f"/v1/tables/{table}/trials", json={}), ADMINS | {"A": 404}),
    "trials": Verb(
        lambda http, table: http.get(f"/v1/tables/{table}/trials"),
        {"-": 404, "R": (200, 403), "I": 404, "RI": 200, "A": 200},
    ),
    "best trial": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/trials/best", json={}),
        {"-": 404, "R": (403, 404), "I": 404, "RI": 404, "A": 404},
    ),
    "forget the best": Verb(lambda http, table: http.delete(f"/v1/tables/{table}/trials/best"), ADMINS | {"A": 404}),
    "artifacts": Verb(
        lambda http, table: http.get(f"/v1/tables/{table}/artifacts"),
        {"-": 404, "R": (200, 403), "I": 404, "RI": 200, "A": 200},
    ),
    "artifact": Verb(
        lambda http, table: http.get(f"/v1/tables/{table}/artifacts/absent"),
        {"-": 404, "R": (403, 404), "I": 404, "RI": 404, "A": 404},
    ),
    "verify": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/artifacts/absent/verify"), ADMINS | {"A": (404, 422)}
    ),
    "promote": Verb(lambda http, table: http.post(f"/v1/tables/{table}/artifacts/absent/promote"), ADMINS | {"A": 404}),
    "roll back": Verb(
        lambda http, table: http.post(f"/v1/tables/{table}/artifacts/rollback"), ADMINS | {"A": (404, 409)}
    ),
    "drop": Verb(lambda http, table: http.delete(f"/v1/tables/{table}"), ADMINS | {"A": 200}),
}
# What is done without a table: (for others, for admins).
PLAIN: dict[str, tuple[Callable[[httpx.AsyncClient], Awaitable[httpx.Response]], int, int]] = {
    "health": (lambda http: http.get("/v1/health"), 200, 200),
    "links": (lambda http: http.get("/"), 200, 200),
    "list": (lambda http: http.get("/v1/tables"), 200, 200),
    "list dropped": (lambda http: http.get("/v1/tables?dropped=true"), 403, 200),
    "declare": (lambda http: http.post("/v1/tables", json={}), 403, 422),
    "status": (lambda http: http.get("/v1/status"), 403, 200),
    "journal": (lambda http: http.get("/v1/journal"), 403, 200),
    "metrics": (lambda http: http.get("/metrics"), 403, 200),
    "description": (lambda http: http.get("/v1/openapi.json"), 200, 200),
    "health of tables": (lambda http: http.get("/v1/health/tables"), 200, 200),
    "load files": (lambda http: http.post("/v1/loads/csv", json={}), 403, 422),
    "load from a database": (lambda http: http.post("/v1/loads/postgres", json={}), 403, 422),
    "jobs": (lambda http: http.get("/v1/jobs"), 403, 200),
    "job": (lambda http: http.get("/v1/jobs/absent"), 404, 404),
    "profiles": (lambda http: http.get("/v1/profiles"), 200, 200),
    "show a profile": (lambda http: http.get("/v1/profiles/absent"), 404, 404),
    "set a profile": (lambda http: http.put("/v1/profiles/absent", json={}), 403, 422),
    "delete a profile": (lambda http: http.delete("/v1/profiles/absent"), 403, 404),
    "create a token": (lambda http: http.post("/v1/tokens", json={}), 403, 422),
    "list tokens": (lambda http: http.get("/v1/tokens"), 403, 200),
    "show a token": (lambda http: http.get("/v1/tokens/absent"), 403, 404),
    "revoke a token": (lambda http: http.delete("/v1/tokens/absent"), 403, 404),
    "rotate a token": (lambda http: http.post("/v1/tokens/absent/rotate"), 403, 404),
    "no such route": (lambda http: http.get("/v1/nothing"), 404, 404),
}
OPEN = ("health", "links")


def full(table: str) -> str:
    return table if "." in table else f"main.{table}"


_streams: dict[str, str] = {}


def mark_of(table: str) -> str:
    return str(Token.of(full(table), _streams.get(table, "none"), 0))


@pytest.fixture
async def place(memory_bus: MemoryBus, lake: Lake, tmp_path: Path) -> AsyncIterator[Running]:
    report = {"state": "ok", "at": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    (tmp_path / "pipeline.json").write_text(json.dumps(report))
    async with running(memory_bus, lake, tmp_path, pace=FollowPace()) as started:
        await declare_all(started, lake)
        yield started


async def declare_all(place: Running, lake: Lake) -> None:
    for name in EXIST:
        await place.declare(name=name)
        _streams[name] = lake.table(full(name)).stream_identity


def client_of(place: Running, secret: str | None) -> httpx.AsyncClient:
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    return httpx.AsyncClient(transport=place.http._transport, base_url="http://gateway", headers=headers, timeout=60)


def secret_of(place: Running, role: str) -> str:
    grants = parse_grants(MATRIX[role][0])
    return place.gateway.access.tokens.create(role, grants, created_by="admin", rate_per_second=1e6)[1]


def rights_of(role: str) -> dict[str, str]:
    letters = MATRIX[role][1].split()
    assert len(letters) == len(TABLES)
    return dict(zip(TABLES, letters, strict=True))


def expected(verb: str, right: str, exists: bool) -> tuple[int, ...]:
    told = VERBS[verb].answers[right]
    answers = told if isinstance(told, tuple) else (told,)
    let_through = any(answer < 400 for answer in answers) and not (VERBS[verb].makes and right == "A")
    return (404,) if let_through and not exists else answers


@pytest.mark.parametrize("role", MATRIX)
async def test_every_cell(place: Running, lake: Lake, role: str) -> None:
    rights = rights_of(role)
    differ: list[str] = []
    async with client_of(place, secret_of(place, role)) as http:
        for verb in VERBS:
            for table, right in rights.items():
                answer = await VERBS[verb].call(http, table)
                wanted = expected(verb, right, table in EXIST)
                if answer.status_code not in wanted:
                    differ.append(f"{role} {verb} {table}: {answer.status_code}, not {wanted}: {answer.text[:200]}")
                if verb == "drop" and answer.status_code == 200:
                    brought_back = await place.http.post(f"/v1/tables/{table}/undrop")
                    assert brought_back.status_code == 200, brought_back.text
        is_admin = "A" in rights.values()
        for name, (plain, for_others, for_admins) in PLAIN.items():
            answer = await plain(http)
            if answer.status_code != (for_admins if is_admin else for_others):
                differ.append(f"{role} {name}: {answer.status_code}: {answer.text[:200]}")
        listed = {entry["name"] for entry in (await http.get("/v1/tables")).json()["tables"]}
        if listed != {table for table in EXIST if rights[table] != "-"}:
            differ.append(f"{role} list: {listed}")
    assert differ == []


@pytest.mark.parametrize("role", SHUT_OUT)
async def test_who_has_no_valid_token_gets_nothing(place: Running, role: str) -> None:
    store = place.gateway.access.tokens
    grants = parse_grants(["admin"])
    secret: str | None = None
    if role == "made up":
        secret = TOKEN + "x"
    elif role == "expired":
        past = datetime.now(UTC) - timedelta(seconds=1)
        _, secret = store.create(role, grants, created_by="admin", expires_at=past)
    elif role == "revoked":
        made, secret = store.create(role, grants, created_by="admin")
        store.revoke(made.id)
    elif role == "rotated away":
        made, secret = store.create(role, grants, created_by="admin")
        store.rotate(made.id)
    bodies = set()
    async with client_of(place, secret) as http:
        for verb in VERBS.values():
            for table in TABLES:
                answer = await verb.call(http, table)
                assert answer.status_code == 401, (role, table, answer.text)
                bodies.add(answer.text)
        for name, (plain, _, _) in PLAIN.items():
            answer = await plain(http)
            assert answer.status_code == (200 if name in OPEN else 401), (role, name)
    assert len(bodies) == 1


@pytest.mark.parametrize("role", [role for role in MATRIX if "-" in rights_of(role).values()])
async def test_hidden_and_absent_tables_answer_alike(place: Running, role: str) -> None:
    """Byte for byte, headers too, but for the name that the caller wrote itself."""
    hidden = [table for table, right in rights_of(role).items() if right == "-"]
    async with client_of(place, secret_of(place, role)) as http:
        for name, verb in VERBS.items():
            told = set()
            for table in [*hidden, "system.not_there"]:
                answer = await verb.call(http, table)
                headers = {key: value for key, value in answer.headers.items() if key != "content-length"}
                told.add((answer.status_code, answer.text.replace(f"'{table}'", "'…'"), str(headers)))
            assert len(told) == 1, (name, told)


async def test_hidden_and_absent_tables_take_the_same_path(place: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither makes the gateway look at the catalog: its time would tell which is which."""
    looks = 0
    refresh = place.gateway.directory.refresh

    async def counted() -> None:
        nonlocal looks
        looks += 1
        await refresh()

    async with client_of(place, secret_of(place, "reader of one")) as http:
        await http.get("/v1/tables/notes")
        await place.gateway.directory.close()  # nothing but requests looks any longer
        monkeypatch.setattr(place.gateway.directory, "refresh", counted)
        for table in ("orders", "absent", "sales.deals", "sales.absent"):
            for verb in VERBS.values():
                await verb.call(http, table)
        assert looks == 0
        await http.get("/v1/tables/notes")
        assert looks == 1


async def test_granted_but_absent_reads_as_hidden(place: Running) -> None:
    async with client_of(place, secret_of(place, "for later")) as http:
        granted, hidden = await http.get("/v1/tables/absent"), await http.get("/v1/tables/orders")
    assert granted.text.replace("absent", "…") == hidden.text.replace("orders", "…")


async def test_what_is_told_of_a_table_depends_on_who_asks(place: Running) -> None:
    """Places are for admins, numbers of rows for those who may see all rows."""
    columns = {"name", "columns", "declaration", "schema"}
    numbers = {"rows", "snapshots", "lag"}
    places = {"metadata_location", "stream"}
    for role, table, has, has_not in [
        ("admin", "notes", columns | numbers | places, set()),
        ("reader of one", "notes", columns | numbers, places),
        ("sees a part", "notes", columns, numbers | places | {"head_token", "files", "bytes"}),
        ("writer of one", "orders", columns, numbers | places | {"head_token", "files", "bytes"}),
    ]:
        async with client_of(place, secret_of(place, role)) as http:
            described = (await http.get(f"/v1/tables/{table}")).json()
            assert has <= described.keys() and not has_not & described.keys(), (role, described.keys())
            listed = next(entry for entry in (await http.get("/v1/tables")).json()["tables"] if entry["name"] == table)
            assert not has_not & listed.keys(), (role, listed.keys())
