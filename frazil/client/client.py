"""Client: publish, SQL and search, and one attribute per resource; all share one transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, Self, TypeVar

from frazil.client.answer import Answer
from frazil.client.artifacts import ArtifactsClient
from frazil.client.builds import BuildsClient
from frazil.client.dead_letters import DeadLettersClient
from frazil.client.embeddings import EmbeddingsClient
from frazil.client.event_bodies import arrow_batches, event_batches
from frazil.client.freshness import SeenToken
from frazil.client.jobs import JobsClient
from frazil.client.loads import LoadsClient
from frazil.client.maintenance import MaintenanceClient
from frazil.client.profiles import ProfilesClient
from frazil.client.publishing import PublishReceipt, events_of_rows, publish_batches
from frazil.client.search import SearchAnswer, read_search_answer, search_body
from frazil.client.sql import EncodedAnswer, Time, query_body, read_encoded_answer
from frazil.client.tables import TablesClient
from frazil.client.tokens import TokensClient
from frazil.client.transport import JsonObject, JsonObjects, Transport, table_path
from frazil.client.trials import TrialsClient
from frazil.requests import DEFAULT_FRESHNESS, DEFAULT_TIMEOUT_S, Format, Freshness, Group, Mode, WhenBehind

_ANSWER_SECONDS = 30.0
"""On top of the time limit of a query or search: it may wait in the queue first, and its answer is sent."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Client:
    """One frazil, for a program. A context manager; threads may share it.

    Attributes: `tables`, `jobs`, `loads`, `artifacts`, `profiles`, `builds`, `embeddings`, `trials`, `tokens`,
    `maintenance`, `dead_letters`.
    """

    def __init__(
        self, url: str, token: str, *, timeout_s: float = 60.0, retry_s: float = 60.0, read_your_writes: bool = False
    ) -> None:
        """`timeout_s` bounds one request, `retry_s` all tries of it together.

        With `read_your_writes`, every query includes, or waits for, everything that this client has written and read
        before, on any gateway and at either freshness. Queries of the past (`as_of`, `snapshot`) are not affected.
        """
        transport = Transport(url, token, timeout_s=timeout_s, retry_s=retry_s)
        self.url = transport.url
        self._transport = transport
        self._seen = SeenToken(enabled=read_your_writes)
        self.tables = TablesClient(transport)
        self.jobs = JobsClient(transport)
        self.loads = LoadsClient(transport, self.jobs)
        self.artifacts = ArtifactsClient(transport)
        self.profiles = ProfilesClient(transport)
        self.builds = BuildsClient(self.jobs)
        self.embeddings = EmbeddingsClient(transport, self.jobs)
        self.trials = TrialsClient(transport, self.jobs)
        self.tokens = TokensClient(transport)
        self.maintenance = MaintenanceClient(transport, self.jobs)
        self.dead_letters = DeadLettersClient(transport)
        self._delegate()

    def _delegate(self) -> None:
        """The same verbs directly on the client: `client.create_table(…)` is `client.tables.create(…)`."""
        self.table = self.tables.get
        self.create_table = self.tables.create
        self.alter_table = self.tables.alter
        self.drop_table = self.tables.drop
        self.undrop_table = self.tables.undrop
        self.purge_table = self.tables.purge
        self.repair_table = self.tables.repair
        self.history = self.tables.history
        self.row_history = self.tables.row_history
        self.key_history = self.tables.key_history
        self.changes = self.tables.changes
        self.export_hint = self.tables.export_hint
        self.job = self.jobs.get
        self.wait_for_job = _with_old_names(self.jobs.wait)
        self.load_csv = self.loads.csv
        self.load_postgres = self.loads.postgres
        self.upload_csv = self.loads.upload_csv
        self.artifact = self.artifacts.get
        self.verify_artifact = self.artifacts.verify
        self.swap_artifact = self.artifacts.swap
        self.rollback_artifact = self.artifacts.rollback
        self.profile = self.profiles.get
        self.set_profile = self.profiles.set
        self.delete_profile = self.profiles.delete
        self.build = _with_old_names(self.builds.run)
        self.embed = _with_old_names(self.embeddings.run)
        self.embedding_models = self.embeddings.models
        self.delete_embeddings = self.embeddings.delete
        self.trial = _with_old_names(self.trials.run)
        self.best_trial = self.trials.best
        self.forget_best = self.trials.forget_best
        self.table_health = self.maintenance.table_health
        self.tables_health = self.maintenance.tables_health
        self.maintain = self.maintenance.run
        self.resend_dead_letters = self.dead_letters.resend
        self.discard_dead_letters = self.dead_letters.discard

    def __repr__(self) -> str:
        return f"<frazil client of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    # Events

    def publish(
        self, table: str, events: Iterable[Mapping[str, Any]] | Any, *, wait: bool = False, timeout_s: float = 30.0
    ) -> PublishReceipt:
        """Publish events `{id?, op?, ts?, actor?, source?, workspace?, data: {…}}`, or an Arrow table of rows.

        They are sent in batches, each of them all or nothing; an error states how many events before it are safe. With
        `wait`, returns when all are visible, or raises `VisibilityTimeout` (the events are safe then too).
        """
        batches = arrow_batches(events) if hasattr(events, "__arrow_c_stream__") else event_batches(events)
        return publish_batches(batches, partial(self.publish_body, table, timeout_s=timeout_s), wait=wait)

    def publish_rows(
        self,
        table: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        id: str | Callable[[Mapping[str, Any]], str] | None = None,
        wait: bool = False,
        timeout_s: float = 30.0,
    ) -> PublishReceipt:
        """Publish plain rows. `id` names the column of the event id, or computes it."""
        return self.publish(table, events_of_rows(rows, id), wait=wait, timeout_s=timeout_s)

    def publish_body(
        self, table: str, body: bytes, content_type: str, *, wait: bool = False, timeout_s: float = 30.0
    ) -> PublishReceipt:
        """Publish one request as it is. Every event in it must have an id, because it may be sent more than once."""
        answer = self._transport.call(
            "POST",
            f"{table_path(table)}/events",
            content=body,
            headers={"Content-Type": content_type},
            params={"wait": "visible", "timeout_s": timeout_s} if wait else None,
            timeout_s=timeout_s + 10 if wait else None,
        )
        receipt = PublishReceipt.of(answer, table)
        self._seen.add(receipt.token)
        return receipt

    def visibility(self, token: str, wait_s: float = 0.0) -> JsonObject:
        """Whether the writes of the token are committed, and in which snapshots."""
        params = {"token": token, "wait_s": wait_s}
        return self._transport.call("GET", "/v1/visibility", params=params, timeout_s=wait_s + 10)

    # Reads

    def sql(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        freshness: Freshness = DEFAULT_FRESHNESS,
        min_token: str | None = None,
        as_of: Time | Mapping[str, Time] | None = None,
        snapshot: Mapping[str, int] | None = None,
        max_rows: int | None = None,
        timeout_s: float | None = None,
        when_behind: WhenBehind | None = None,
    ) -> Answer:
        """Run one SELECT. `parameters` fill `?` in order, or `$name` by name.

        `live` answers include every event that had its receipt before; `committed` only the newest snapshot.
        `min_token` is the token of a receipt or an answer: the answer includes its writes, or waits for them. `as_of`
        and `snapshot` go back in time, for all tables or for the named ones.
        """
        encoded = self.sql_written(
            text,
            parameters,
            format="arrow",
            freshness=freshness,
            min_token=min_token,
            as_of=as_of,
            snapshot=snapshot,
            max_rows=max_rows,
            timeout_s=timeout_s,
            when_behind=when_behind,
        )
        return Answer.of(encoded.facts, encoded.content)

    def sql_written(
        self,
        text: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        format: Format,
        min_token: str | None = None,
        as_of: Time | Mapping[str, Time] | None = None,
        timeout_s: float | None = None,
        **options: Any,
    ) -> EncodedAnswer:
        """The same as the bytes of a format, to store or to pass on. The other options are those of `sql`."""
        past = as_of is not None or options.get("snapshot") is not None
        body = query_body(
            text,
            parameters,
            as_of,
            min_token=min_token if past else self._seen.min_token(min_token),
            format=format,
            timeout_s=timeout_s,
            **options,
        )
        allowed_s = (timeout_s or DEFAULT_TIMEOUT_S) + _ANSWER_SECONDS
        response = self._transport.send("POST", "/v1/query", json_body=body, timeout_s=allowed_s)
        answer = read_encoded_answer(response, format, "/v1/query")
        if not past:
            self._seen.add(str(answer.facts.get("token") or ""))
        return answer

    def search(
        self,
        table: str | None = None,
        query: str | None = None,
        *,
        profile: str | None = None,
        vector: Sequence[float] | None = None,
        mode: Mode | None = None,
        k: int | None = None,
        offset: int | None = None,
        min_score: float | None = None,
        weights: Mapping[str, float] | None = None,
        fields: Sequence[str] | Mapping[str, float] | None = None,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        group: Group | None = None,
        snippet: bool | int | None = None,
        freshness: Freshness = DEFAULT_FRESHNESS,
        min_token: str | None = None,
        timeout_s: float | None = None,
        when_behind: WhenBehind | None = None,
    ) -> SearchAnswer:
        """Search a table, or by a profile, for words, a vector (a list or an array of numbers), or both.

        `filter` is an SQL condition over the columns of the table. `live` finds every event that had its receipt
        before. `min_token` is the token of a receipt or an answer: the answer includes its writes, or waits for them.
        """
        body = search_body(
            table=table,
            profile=profile,
            query=query,
            vector=vector,
            mode=mode,
            k=k,
            offset=offset,
            min_score=min_score,
            weights=weights,
            fields=fields,
            filter=filter,
            columns=columns,
            group=group,
            snippet=snippet,
            freshness=freshness,
            min_token=self._seen.min_token(min_token),
            timeout_s=timeout_s,
            when_behind=when_behind,
        )
        allowed_s = (timeout_s or DEFAULT_TIMEOUT_S) + _ANSWER_SECONDS
        response = self._transport.call("POST", "/v1/search", json_body=body, timeout_s=allowed_s)
        answer = read_search_answer(response, "/v1/search")
        self._seen.add(answer.token)
        return answer

    # The server

    def health(self) -> JsonObject:
        return self._transport.call("GET", "/v1/health")

    def status(self) -> JsonObject:
        return self._transport.call("GET", "/v1/status")

    def journal(self, *, table: str | None = None, limit: int = 100) -> JsonObjects:
        """Commits and failures, newest first."""
        params: dict[str, Any] = {"limit": limit} | ({"table": table} if table else {})
        entries: JsonObjects = self._transport.call("GET", "/v1/journal", params=params)["entries"]
        return entries


def _with_old_names(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The method with `tell`, the former name of `on_progress`, still accepted."""

    @wraps(method)
    def called(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        if "tell" in options:
            options["on_progress"] = options.pop("tell")
        return method(*arguments, **options)

    return called
