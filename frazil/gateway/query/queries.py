"""Queries: judge the statement, find its tables, take their cuts, run it in a sandboxed worker, audit it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from frazil.access import AuditFields, AuditLog, Identity, ReadGrant, audit_entry
from frazil.errors import InvalidInput, table_not_found
from frazil.events import Token
from frazil.gateway.relations import relation_of
from frazil.requests import FreshnessSpec, QueryRequest, Waiting
from frazil.serving.sql import FilesUnreadable, QueryPool, QueryTimeout, Relation, Result, SqlQuery, TableRef
from frazil.tables import CutMoved, SchemaMoved, TableCut, TableRead, TableReplaced, TableResolver

AUDIT_TABLE = "system.audit"
_TRIES = 4


@dataclass(frozen=True)
class _AllowedTable:
    """A table that the statement names, and what the caller may see of it."""

    ref: TableRef
    grant: ReadGrant

    @property
    def read(self) -> TableRead:
        return TableRead(f"{self.ref.schema}.{self.ref.name}", self.ref.version, self.ref.as_of)


@dataclass(frozen=True)
class _ReadTable(_AllowedTable):
    """The same once it was read."""

    cut: TableCut


@dataclass(frozen=True)
class QueryAnswer:
    """The rows in the requested format, and where they come from."""

    columns: list[dict[str, str]]
    body: bytes
    about: dict[str, Any]
    """`row_count`, `truncated`, `token`, `freshness`, `snapshots`, `elapsed_ms`, `queued_ms`"""


class Queries:
    def __init__(self, *, pool: QueryPool, resolver: TableResolver, audit: AuditLog) -> None:
        self._pool = pool
        self._resolver = resolver
        self._audit = audit

    async def answer(
        self, request: QueryRequest, identity: Identity, *, client: str | None = None, waiting: Waiting = nullcontext
    ) -> QueryAnswer:
        """The answer, once it is in the audit log; so is every failure. Cancelling this stops the query."""
        reads = replace(request.reads, waiting=waiting)
        with audit_entry(self._audit, "query", identity, words=request.sql, client=client) as trace:
            return await self._answer(request, reads, identity, trace, time.monotonic())

    async def _answer(
        self, request: QueryRequest, reads: FreshnessSpec, identity: Identity, trace: AuditFields, started: float
    ) -> QueryAnswer:
        deadline = started + request.timeout_s
        statement = await self._pool.judge(request.sql, owner=identity.id, timeout_seconds=request.timeout_s)
        trace.tables = tuple(sorted({f"{ref.schema}.{ref.name}" for ref in statement.tables}))
        for attempt in range(_TRIES):
            try:
                result, tables = await self._run(
                    statement.sql, statement.tables, request, reads, identity, deadline, guess=attempt == 0
                )
                break
            except (CutMoved, SchemaMoved, TableReplaced, FilesUnreadable):
                # Another gateway, a commit, a new column or an expiry came between: finding the tables again finds it.
                if attempt == _TRIES - 1:
                    raise
                await self._resolver.refresh()
        token = Token()
        for table in tables:
            token = token.merge(table.cut.token)
        trace.rows, trace.snapshot = result.row_count, str(token) if token.marks else None
        return _answer(request, result, tables, token, started)

    async def _run(
        self,
        sql: str,
        refs: Sequence[TableRef],
        request: QueryRequest,
        reads: FreshnessSpec,
        identity: Identity,
        deadline: float,
        *,
        guess: bool,
    ) -> tuple[Result, list[_ReadTable]]:
        allowed, audit = await self._allowed(refs, identity)
        found = await self._resolver.resolve([table.read for table in allowed], reads, deadline=deadline, guess=guess)
        tables: list[_ReadTable] = []

        def relations() -> list[Relation]:
            """Called when a worker is free: the cut is of that moment."""
            tables[:] = [_ReadTable(one.ref, one.grant, table.cut()) for one, table in zip(allowed, found, strict=True)]
            cuts = [relation_of(table.cut, table.ref.reads, table.grant) for table in tables]
            return [*cuts, *(self._audit_relation(ref) for ref in audit)]

        left = deadline - time.monotonic()
        if left <= 0:
            raise QueryTimeout(f"the query did not begin within {request.timeout_s:g} s", hint="give it more time")
        query = SqlQuery(
            sql=sql,
            owner=identity.id,
            parameters=request.parameters,
            format=request.format or "json",
            max_rows=request.max_rows,
            timeout_seconds=left,
        )
        result = await self._pool.run(query, relations)
        for table, resolved in zip(tables, found, strict=True):
            await resolved.confirm(table.cut.end)
        return result, tables

    async def _allowed(
        self, refs: Sequence[TableRef], identity: Identity
    ) -> tuple[list[_AllowedTable], list[TableRef]]:
        """The tables, each once, with what the caller may see of it, and apart from them those of the audit log.

        A table that is not there and one that the caller may not read are refused alike, after the same look at the
        catalog. A name that is also that of a CTE may mean that one: the engine decides, and finds no table.
        """
        allowed: dict[tuple[str, str], _AllowedTable] = {}
        audit: list[TableRef] = []
        for ref in refs:
            name = f"{ref.schema}.{ref.name}"
            grant = identity.read_grant(name)
            if grant is not None and name == AUDIT_TABLE:
                audit.append(ref)
            elif await self._resolver.exists(name) and grant is not None:
                allowed.setdefault(ref.reads, _AllowedTable(ref, grant))
            elif ref.certain:
                raise table_not_found(name)
        return list(allowed.values()), audit

    def _audit_relation(self, ref: TableRef) -> Relation:
        if ref.version is not None or ref.as_of is not None:
            raise InvalidInput(
                f"{AUDIT_TABLE} has no snapshots", code="sql_refused", hint="filter by its column `logged_at`"
            )
        return Relation(
            schema=ref.reads[0],
            name=ref.reads[1],
            columns=self._audit.columns,
            metadata=None,
            snapshot_id=None,
            lines=self._audit.glob,
        )


def _answer(
    request: QueryRequest, result: Result, tables: Sequence[_ReadTable], token: Token, started: float
) -> QueryAnswer:
    now = datetime.now(UTC)
    snapshots: dict[str, Any] = {}
    for table in tables:
        cut, name = table.cut, table.cut.table.name.removeprefix("main.")
        # A table that is read at two times, by AT, has an entry for each.
        key = name if name not in snapshots else f"{name}@{cut.snapshot_id}"
        snapshots[key] = cut.body(now, with_live_rows=not table.grant.filters)
    about = {
        "row_count": result.row_count,
        "truncated": result.truncated,
        "token": str(token),
        "freshness": request.freshness,
        "snapshots": snapshots,
        "elapsed_ms": round((time.monotonic() - started) * 1000, 3),
        "queued_ms": round(result.queued_ms, 3),
    }
    return QueryAnswer(result.columns, result.body, about)
