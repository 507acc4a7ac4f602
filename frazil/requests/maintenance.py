"""Maintenance request: a step for one table, or its plan."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, ClassVar

from frazil.errors import InvalidInput
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.job_request import JobRequest

_CODE = "bad_maintenance"
_WORDS = Refusal("`what` is a word, `dry_run` and `all_snapshots` true or false")


class MaintenanceRequest(JobRequest, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        noun="maintenance",
        code=_CODE,
        shape="maintenance is {what, sort?, dry_run?, all_snapshots?, at?}",
        example='{"what": "compact"}',
        unknown_field_code=_CODE,
        unknown_fields_first=True,
    )
    empty_means_default: ClassVar[frozenset[str]] = frozenset({"sort"})

    what: Annotated[str, _WORDS]
    sort: Annotated[tuple[str, ...], Refusal("`sort` is a list of columns", '"sort": ["customer"]')] = ()
    dry_run: Annotated[bool, _WORDS] = False
    """Only plan it."""
    all_snapshots: Annotated[bool, _WORDS] = False
    at: Annotated[str, Refusal("`at` is a day", '"at": "2030-01-31"')] | None = None
    """The day that a plan of retention is made for."""

    def __post_init__(self) -> None:
        if (self.all_snapshots or self.at is not None) and self.what != "retention":
            raise InvalidInput("`all_snapshots` and `at` are of retention", code=_CODE, hint="leave them out")
        if self.at is not None and not self.dry_run:
            # A day to come would remove rows that are within their years today.
            raise InvalidInput("only a plan is made for another day", code=_CODE, hint='"dry_run": true')
        _ = self.day  # refuses what is no day

    @property
    def day(self) -> date | None:
        try:
            return None if self.at is None else date.fromisoformat(self.at)
        except ValueError as error:
            raise InvalidInput("`at` is a day", code=_CODE, hint='"at": "2030-01-31"') from error

    def params(self) -> dict[str, Any]:
        """Without what is only of plans."""
        return {"what": self.what, "sort": list(self.sort), "all_snapshots": self.all_snapshots}
