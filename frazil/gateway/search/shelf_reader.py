"""Shelf reader: one shelf as this gateway serves it, with its lease, its swaps and what is wrong with it.

The register on the shelf is the truth: after a kill anywhere, following it again leads to the same place. Coroutines
take turns: one at a time opens, swaps or checks a shelf. All other methods block and are called in a thread. The
engines are loaded by the first thread that needs them: until then HTTP must not wait for them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.crash import crash_point
from frazil.embedding import OWN, Model
from frazil.errors import Conflict, FrazilError, Unavailable
from frazil.events.declaration import Chunking, TableSpec
from frazil.gateway.search.query_models import OwnVectors, QueryModels
from frazil.gateway.threads import finish_in_thread
from frazil.lake.catalog import LakeTable
from frazil.serving import Profile, SearchSettings, search
from frazil.serving.artifacts import ArtifactEntry, ArtifactState, LocalCopies, Register, Shelf
from frazil.tables import Source, source_of

if TYPE_CHECKING:
    from frazil.serving.search import Searchable, ServedGenerations, ServingStatus, SwapFailure, SwapResult

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_UNSOUND = ("artifact_canary", "artifact_counts")
"""Of an artifact whose every byte is what its builder wrote: it is no better anywhere else."""


@dataclass(frozen=True)
class SearchedTable:
    """The table behind a shelf, as far as its searches depend on it. Equal: the same generations can answer for it."""

    table: str
    source: Source
    """Another one is another table under the same name."""
    schema: pa.Schema
    key: tuple[str, ...]
    text: tuple[str, ...]
    chunk: Chunking
    vector: str | None
    """The column with the users' own vectors."""
    model: str = field(compare=False)
    """The model before there is an artifact; afterwards the artifact says."""

    @classmethod
    def of(cls, table: LakeTable, spec: TableSpec, profile: Profile | None = None) -> SearchedTable:
        searched = spec.searched
        assert searched is not None, "only of tables that are searched"
        declared = OWN if searched.vector is not None else searched.model
        return cls(
            table=table.name,
            source=source_of(table),
            schema=spec.row_schema(),
            key=spec.key if spec.kind == "entity" else ("_id",),
            text=spec.text,
            chunk=searched.chunk,
            vector=searched.vector,
            model=(profile.model if profile else None) or declared,
        )

    def is_source_of(self, entry: ArtifactEntry) -> bool:
        """Whether this artifact was made from this very table, and not from another that had its name."""
        return entry.cut.table_id in ("", self.source[0], self.source[1])

    def searchable(self, shelf: str, model: Model | None, *, own: bool) -> Searchable:
        """Its documents as they are searched with this model; `own`: by the vectors that came with them."""
        return search.Searchable(
            table=shelf,
            schema=self.schema,
            key=self.key,
            text=self.text,
            model=model,
            chunk=self.chunk,
            vector=self.vector if own else None,
        )


class ShelfReader:
    def __init__(
        self,
        name: str,
        shelf: Shelf,
        copies: LocalCopies,
        *,
        reader: str,
        models: QueryModels,
        own_dims: Callable[[str], int | None],
        settings: SearchSettings,
        linger_seconds: float,
    ) -> None:
        """`own_dims` gives the dimensions of the vectors that users bring to a table, before there is an artifact.

        What no longer serves stays open for `linger_seconds`, for those who were handed it just before.
        """
        self.name = name
        self.turn = asyncio.Lock()
        """One at a time opens, swaps or checks the shelf; the others wait without a thread."""
        self.generations: ServedGenerations | None = None
        """What searches are answered from. Another object is another set of fresh documents."""
        self.error: FrazilError | None = None
        """Of the last look, if it failed."""
        self.trouble: SwapFailure | None = None
        """Why the shelf does not serve what it should; `at` says since when."""
        self.entry: ArtifactEntry | None = None
        """What is served, as the register had it."""
        self.register: Register | None = None
        """As it was seen last."""
        self.swaps = 0
        self._shelf = shelf
        self._copies = copies
        self._reader = reader
        self._models = models
        self._own_dims = own_dims
        self._settings = settings
        self._linger_seconds = linger_seconds
        self._table: SearchedTable | None = None
        """What `generations` answer for."""
        self._failures = 0
        self._failed_for: SearchedTable | None = None
        self._retry_at = 0.0
        self._over: list[tuple[float, ServedGenerations]] = []
        self._leasing = threading.Lock()
        self._taking: str | None = None
        self._failing: SwapFailure | None = None
        """Of the last check of canaries, if it failed."""

    def ready(self, table: SearchedTable) -> ServedGenerations | None:
        """What to search, without a look at anything; None if it must be opened first."""
        return self.generations if self._table == table else None

    async def open(self, table: SearchedTable) -> ServedGenerations:
        """What to search, once the shelf is open. Raises `Unavailable` with what keeps it from being opened."""
        async with self.turn:
            if (ready := self.ready(table)) is not None:
                return ready
            if not self.is_backing_off(table):
                with suppress(FrazilError):
                    await self.follow(table)
            # Also after a failure: where the current artifact is unfit, the one before it may serve.
            if (ready := self.ready(table)) is None:
                raise self._unavailable() from self.error
            return ready

    async def follow(self, table: SearchedTable) -> SwapResult | None:
        """Serve what the register says is current. The caller has the turn.

        If it raises, what served before still does; `trouble` and `error` say why.
        """
        try:
            swapped = await finish_in_thread(self.follow_register, table)
        except FrazilError as error:
            self._failed(error, table)
            raise
        except Exception as error:
            wrong = FrazilError(f"{self.name} could not be opened: {error}", code="shelf_unopened")
            self._failed(wrong, table)
            raise wrong from error
        self._succeeded()
        return swapped

    def is_backing_off(self, table: SearchedTable) -> bool:
        """Whether it failed a moment ago. Another table of that name did not."""
        return self._failed_for == table and time.monotonic() < self._retry_at

    def _failed(self, error: FrazilError, table: SearchedTable) -> None:
        self._failures = self._failures + 1 if table == self._failed_for else 1
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** (self._failures - 1))
        self.error, self._failed_for, self._retry_at = error, table, time.monotonic() + pause

    def _succeeded(self) -> None:
        self._failures, self._retry_at, self.error, self._failed_for = 0, 0.0, None, None

    def _unavailable(self) -> Unavailable:
        """Why the shelf cannot be searched; it is tried again by itself."""
        error = self.error
        assert error is not None, "it has failed"
        pause = max(1.0, self._retry_at - time.monotonic())
        return Unavailable(error.message, code=error.code, hint=error.hint, retry_after_seconds=pause)

    def follow_register(self, table: SearchedTable) -> SwapResult | None:
        """The blocking part of `follow`."""
        register = self.register = self._shelf.register()
        entry = register.current if register.current and table.is_source_of(register.current) else None
        if self._table is not None and self._table.source != table.source:
            self._rebind(None, None)
        try:
            swapped = self._follow(table, register, entry)
        except Exception as error:
            self._note(entry.generation if entry else "", error)
            raise
        # A generation that failed and has none to go back to is no better for being current.
        failing = self._failing
        self.trouble = failing if failing and failing.generation == self.status().generation else None
        return swapped

    def _follow(self, table: SearchedTable, register: Register, entry: ArtifactEntry | None) -> SwapResult | None:
        serving, ours = self.generations, self.status().generation
        if entry is None:
            if serving is None or ours or self._table != table or self.model != self._declared(table):
                self._rebind(self._without_artifact(table), None, table)
                return search.SwapResult(None, ours, 0.0, drained=False) if ours else None
            return None
        if serving is not None and self._table == table and _model_of(serving) == _model_in(entry):
            if ours == entry.generation:
                self.entry = entry
                return None
            with suppress(search.FreshGap):
                return self._swap(serving, entry, going_back=_is_going_back(register, ours, entry))
        return self._replace(table, register, entry)

    def _swap(self, serving: ServedGenerations, entry: ArtifactEntry, *, going_back: bool) -> SwapResult:
        """The usual way: the next generation beside the same fresh documents."""
        begun = time.monotonic()
        self._take(entry)
        try:
            swapped = serving.swap(entry, going_back=going_back)
        finally:
            self._taking = None
        self.entry = entry
        self.swaps += 1
        crash_point("served_swapped")
        self._renew_lease()
        return replace(swapped, seconds=time.monotonic() - begun)

    def _replace(self, table: SearchedTable, register: Register, entry: ArtifactEntry) -> SwapResult:
        """Generations of its own for this artifact: the first, or of another model, or from before what is fresh here.

        Where nothing serves yet and the current artifact is unfit, the previous one is better than none.
        """
        begun, ours = time.monotonic(), self.status().generation
        try:
            self._open(table, entry)
        except FrazilError as error:
            previous = register.previous
            if self.generations is not None or previous is None or not table.is_source_of(previous):
                raise
            with suppress(FrazilError):
                self._open(table, previous)
            raise error
        return search.SwapResult(entry.generation, ours, time.monotonic() - begun, drained=False)

    def _open(self, table: SearchedTable, entry: ArtifactEntry) -> None:
        self._take(entry)
        try:
            model = self._models.of_artifact(entry.model)
            serving = self._new(table, model, own=entry.model is not None and entry.model.name == OWN)
            serving.swap(entry)
        finally:
            self._taking = None
        self._rebind(serving, entry, table)
        self.swaps += 1
        crash_point("served_opened")
        self._renew_lease()

    def check_canaries(self) -> SwapFailure | None:
        """Ask the generation that serves what its builder asked. One that fails has left its place, if there is a
        previous one, when this returns why.
        """
        serving = self.generations
        if serving is None:
            return None
        try:
            trouble = serving.check_canaries()
        except FrazilError:  # it failed, and so did the way back
            trouble = serving.status().trouble
        self._failing = trouble
        if trouble is not None:
            crash_point("served_canary_failed")
            self._note(trouble.generation, Conflict(trouble.reason, code=trouble.code))
            self._failing = self.trouble
            self._renew_lease()
        return trouble

    def is_unsound(self) -> bool:
        """Whether what is wrong is the artifact itself, for everybody."""
        return self.trouble is not None and self.trouble.code in _UNSOUND

    def withdraw(self, trouble: SwapFailure) -> ArtifactEntry | None:
        """Take a generation that failed back in the register, for everybody; returns what is current now."""
        entry = self._shelf.rollback(trouble.reason, failed=trouble.generation)
        crash_point("served_withdrawn")
        return entry

    def status(self) -> ServingStatus:
        if self.generations is None:
            return search.ServingStatus(None, None, 0, 0, (), None)
        return self.generations.status()

    @property
    def model(self) -> str | None:
        """The name of the model of searches; `own` for vectors that users bring, None: searched by words alone."""
        model = None if self.generations is None else self.generations.searchable.model
        return None if model is None else model.name

    def renew(self) -> None:
        """Renew the lease, and close what nobody can be searching any more."""
        now = time.monotonic()
        for over in [serving for until, serving in self._over if until <= now]:
            over.close()
        self._over = [(until, serving) for until, serving in self._over if until > now]
        self._renew_lease()

    @property
    def is_over(self) -> bool:
        """Whether nothing here is open any more."""
        return self.generations is None and not self._over

    def release(self) -> None:
        """Serve this shelf no more; those who search finish."""
        self._rebind(None, None)
        with self._leasing:
            self._shelf.leave(self._reader)

    def close(self) -> None:
        """Let go of everything now."""
        self.release()
        for _, serving in self._over:
            serving.close()
        self._over = []

    def _take(self, entry: ArtifactEntry) -> None:
        """Hold it before its files are looked at, so that no clean-up comes in between."""
        with self._leasing:
            self._taking = entry.generation
            self._shelf.take(self._reader, entry.generation, beside=self._leased(), serving=self._answering())
        crash_point("served_taken")

    def _renew_lease(self) -> None:
        with self._leasing:
            if leased := self._leased():
                self._shelf.serve(self._reader, leased, serving=self._answering())
            else:
                self._shelf.leave(self._reader)
        crash_point("served_said")

    def _leased(self) -> list[str]:
        open_ones = [self.status(), *(serving.status() for _, serving in self._over)]
        names = [self._taking, *(name for one in open_ones for name in (one.generation, *one.draining))]
        return sorted({name for name in names if name})

    def _answering(self) -> str:
        return self.status().generation or ""

    def _rebind(
        self, generations: ServedGenerations | None, entry: ArtifactEntry | None, table: SearchedTable | None = None
    ) -> None:
        """One reference: searches that begin from here on get the new one."""
        before, self.generations, self.entry, self._table = self.generations, generations, entry, table
        if before is not None:
            self._over.append((time.monotonic() + self._linger_seconds, before))

    def _without_artifact(self, table: SearchedTable) -> ServedGenerations:
        """Before the first build: everything that is searched is fresh."""
        if table.model == OWN:
            dims = self._own_dims(table.table)
            return self._new(table, None if dims is None else OwnVectors(dims), own=True)
        return self._new(table, self._models.open(table.model), own=False)

    def _declared(self, table: SearchedTable) -> str | None:
        """The model of searches without an artifact; of own vectors there is none before they have a length."""
        if table.model != OWN:
            return table.model
        return None if self._own_dims(table.table) is None else OWN

    def _new(self, table: SearchedTable, model: Model | None, *, own: bool) -> ServedGenerations:
        searchable = table.searchable(self.name, model, own=own)
        fresh = search.FreshDocuments(
            searchable,
            max_documents=self._settings.fresh_documents,
            max_bytes=int(self._settings.fresh_memory),
        )
        return search.ServedGenerations(searchable, self._copies, fresh=fresh)

    def _note(self, generation: str, error: Exception) -> None:
        code = error.code if isinstance(error, FrazilError) else "internal"
        reason = error.message if isinstance(error, FrazilError) else str(error)
        known = self.trouble
        same = known is not None and (known.generation, known.code) == (generation, code)
        self.trouble = search.SwapFailure(
            generation, code, reason, known.at if known is not None and same else time.time()
        )


def _model_of(generations: ServedGenerations) -> tuple[str, str, int] | None:
    model = generations.searchable.model
    return None if model is None else (model.name, model.version, model.dims)


def _model_in(entry: ArtifactEntry) -> tuple[str, str, int] | None:
    return None if entry.model is None else (entry.model.name, entry.model.version, entry.model.dims)


def _is_going_back(register: Register, ours: str | None, entry: ArtifactEntry) -> bool:
    """Whether somebody chose the older one: ours was current before it became so.

    Without that, an older one is refused, whoever calls it current.
    """
    before = register.find(ours) if ours else None
    if before is None or before.promoted_at is None or before.state is ArtifactState.CANDIDATE:
        return False
    return (entry.promoted_at or 0.0) >= before.promoted_at
