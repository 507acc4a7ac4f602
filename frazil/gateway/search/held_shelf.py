"""One shelf as this gateway holds it: what it serves from, what it says that it holds, and what troubles it.

Every method blocks and is called in a thread; whoever calls `follow` or `prove` is alone. The register on the shelf is
the truth: after a kill anywhere, following it again leads to the same place. The engines are loaded by the first
thread that needs them: until then HTTP must not wait for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.crash import crash_point
from frazil.embedding import OWN, Model
from frazil.errors import Conflict, FrazilError
from frazil.gateway.search.query_models import OwnVectors, QuestionModels
from frazil.gateway.search.subject import Subject
from frazil.serving import SearchSettings, search
from frazil.serving.artifacts import ArtifactEntry, ArtifactState, LocalCopies, Register, Shelf

if TYPE_CHECKING:
    from frazil.serving.search import Searchable, ServedGenerations, ServingStatus, SwapFailure

_UNSOUND = ("artifact_canary", "artifact_counts")
"""Of an artifact whose every byte is what its builder wrote: it is no better anywhere else."""


@dataclass(frozen=True)
class Served:
    """One shelf, open: what its searches are answered from."""

    table: str
    """The full name of the table."""
    shelf: str
    model: str | None
    """The name of the artifact's model; `own` for vectors that users bring, None: searched by words alone."""
    searchable: Searchable
    serving: ServedGenerations


@dataclass(frozen=True)
class Moved:
    """A generation took the place of another."""

    generation: str | None
    previous: str | None
    seconds: float


class HeldShelf:
    def __init__(
        self,
        name: str,
        shelf: Shelf,
        copies: LocalCopies,
        *,
        reader: str,
        models: QuestionModels,
        own_dims: Callable[[str], int | None],
        settings: SearchSettings,
        linger_seconds: float,
    ) -> None:
        """`own_dims` tells how long the vectors are that users bring to a table, before there is an artifact.

        What no longer serves stays open for `linger_seconds`, for those who were handed it just before.
        """
        self.name = name
        self.served: Served | None = None
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
        self._subject: Subject | None = None
        self._over: list[tuple[float, ServedGenerations]] = []
        self._telling = threading.Lock()
        self._taking: str | None = None
        self._failing: SwapFailure | None = None
        """What the last proof of a generation said."""

    def ready(self, subject: Subject) -> Served | None:
        """What to search, without a look at anything; None if it must be opened first."""
        return self.served if self._subject == subject else None

    def follow(self, subject: Subject) -> Moved | None:
        """Serve what the register says is current. If it raises, what served before still does; `trouble` says why."""
        register = self.register = self._shelf.register()
        entry = register.current if register.current and subject.is_of(register.current) else None
        if self._subject is not None and self._subject.source != subject.source:
            self._rebind(None, None)
        try:
            moved = self._follow(subject, register, entry)
        except Exception as error:
            self._note(entry.generation if entry else "", error)
            raise
        # A generation that failed and has none to go back to is no better for being current.
        failing = self._failing
        self.trouble = failing if failing and failing.generation == self.status().generation else None
        return moved

    def _follow(self, subject: Subject, register: Register, entry: ArtifactEntry | None) -> Moved | None:
        served, ours = self.served, self.status().generation
        if entry is None:
            if served is None or ours or self._subject != subject or served.model != self._declared(subject):
                self._rebind(self._without_artifact(subject), None, subject)
                return Moved(None, ours, 0.0) if ours else None
            return None
        if served is not None and self._subject == subject and _model_of(served) == _model_in(entry):
            if ours == entry.generation:
                self.entry = entry
                return None
            with suppress(search.FreshGap):
                return self._swapped(served, entry, going_back=_is_going_back(register, ours, entry))
        return self._beside(subject, register, entry)

    def _swapped(self, served: Served, entry: ArtifactEntry, *, going_back: bool) -> Moved:
        """The usual way: the next generation of the same serving, fresh documents and all."""
        begun = time.monotonic()
        self._take(entry)
        try:
            swapped = served.serving.swap(entry, going_back=going_back)
        finally:
            self._taking = None
        self.entry = entry
        self.swaps += 1
        crash_point("served_swapped")
        self._say()
        return Moved(entry.generation, swapped.previous, time.monotonic() - begun)

    def _beside(self, subject: Subject, register: Register, entry: ArtifactEntry) -> Moved:
        """A serving of its own for this artifact: the first, or of another model, or from before what is fresh here.

        Where nothing serves yet and the current artifact is unfit, the previous one is better than none.
        """
        begun, ours = time.monotonic(), self.status().generation
        try:
            self._open(subject, entry)
        except FrazilError as error:
            previous = register.previous
            if self.served is not None or previous is None or not subject.is_of(previous):
                raise
            with suppress(FrazilError):
                self._open(subject, previous)
            raise error
        return Moved(entry.generation, ours, time.monotonic() - begun)

    def _open(self, subject: Subject, entry: ArtifactEntry) -> None:
        self._take(entry)
        try:
            model = self._models.of_artifact(entry.model)
            served = self._new(subject, model, own=entry.model is not None and entry.model.name == OWN)
            served.serving.swap(entry)
        finally:
            self._taking = None
        self._rebind(served, entry, subject)
        self.swaps += 1
        crash_point("served_opened")
        self._say()

    def prove(self) -> SwapFailure | None:
        """Ask the generation that serves what its builder asked. One that fails has left its place, if there is a
        previous one, when this returns why.
        """
        served = self.served
        if served is None:
            return None
        try:
            trouble = served.serving.prove()
        except FrazilError:  # it failed, and so did the way back
            trouble = served.serving.status().trouble
        self._failing = trouble
        if trouble is not None:
            crash_point("served_canary_failed")
            self._note(trouble.generation, Conflict(trouble.reason, code=trouble.code))
            self._failing = self.trouble
            self._say()
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
        if self.served is None:
            return search.ServingStatus(None, None, 0, 0, (), None)
        return self.served.serving.status()

    def renew(self) -> None:
        """Say again what is held, and close what nobody can be searching any more."""
        now = time.monotonic()
        for over in [serving for until, serving in self._over if until <= now]:
            over.close()
        self._over = [(until, serving) for until, serving in self._over if until > now]
        self._say()

    @property
    def is_over(self) -> bool:
        """Whether nothing here is open any more."""
        return self.served is None and not self._over

    def release(self) -> None:
        """Serve this shelf no more; those who search finish."""
        self._rebind(None, None)
        with self._telling:
            self._shelf.leave(self._reader)

    def close(self) -> None:
        """Let go of everything now."""
        self.release()
        for _, serving in self._over:
            serving.close()
        self._over = []

    def _take(self, entry: ArtifactEntry) -> None:
        """Hold it before its files are looked at, so that no clean-up comes in between."""
        with self._telling:
            self._taking = entry.generation
            self._shelf.take(self._reader, entry.generation, beside=self._held(), serving=self._answering())
        crash_point("served_taken")

    def _say(self) -> None:
        with self._telling:
            if held := self._held():
                self._shelf.serve(self._reader, held, serving=self._answering())
            else:
                self._shelf.leave(self._reader)
        crash_point("served_said")

    def _held(self) -> list[str]:
        told = [self.status(), *(serving.status() for _, serving in self._over)]
        names = [self._taking, *(name for one in told for name in (one.generation, *one.draining))]
        return sorted({name for name in names if name})

    def _answering(self) -> str:
        return self.status().generation or ""

    def _rebind(self, served: Served | None, entry: ArtifactEntry | None, subject: Subject | None = None) -> None:
        """One reference: searches that begin from here on get the new one."""
        before, self.served, self.entry, self._subject = self.served, served, entry, subject
        if before is not None:
            self._over.append((time.monotonic() + self._linger_seconds, before.serving))

    def _without_artifact(self, subject: Subject) -> Served:
        """Before the first build: everything that is searched is fresh."""
        if subject.model == OWN:
            dims = self._own_dims(subject.table)
            return self._new(subject, None if dims is None else OwnVectors(dims), own=True)
        return self._new(subject, self._models.open(subject.model), own=False)

    def _declared(self, subject: Subject) -> str | None:
        """The model of a serving without an artifact; of own vectors there is none before they have a length."""
        if subject.model != OWN:
            return subject.model
        return None if self._own_dims(subject.table) is None else OWN

    def _new(self, subject: Subject, model: Model | None, *, own: bool) -> Served:
        searchable = subject.searchable(self.name, model, own=own)
        fresh = search.FreshDocuments(
            searchable,
            max_documents=self._settings.fresh_documents,
            max_bytes=int(self._settings.fresh_memory),
        )
        serving = search.ServedGenerations(searchable, self._copies, fresh=fresh)
        return Served(subject.table, self.name, None if model is None else model.name, searchable, serving)

    def _note(self, generation: str, error: Exception) -> None:
        code = error.code if isinstance(error, FrazilError) else "internal"
        reason = error.message if isinstance(error, FrazilError) else str(error)
        known = self.trouble
        same = known is not None and (known.generation, known.code) == (generation, code)
        self.trouble = search.SwapFailure(
            generation, code, reason, known.at if known is not None and same else time.time()
        )


def _model_of(served: Served) -> tuple[str, str, int] | None:
    model = served.searchable.model
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
