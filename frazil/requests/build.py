"""Build request: an artifact of a table, to answer searches from."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec.structs import force_setattr

from frazil.events.declaration import table_name
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.job_request import JobRequest


class BuildRequest(JobRequest, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        noun="a build", code="bad_build", shape="a build is an object with `table`", example='{"table": "notes"}'
    )

    table: str
    profile: Annotated[str, Refusal("`profile` is the name of a profile", "frazil profiles list")] | None = None
    """Build what this profile is answered from."""
    force: Annotated[bool, Refusal("`force` is true or false", '"force": true')] = False
    """Also when nothing has changed since the current artifact."""

    def __post_init__(self) -> None:
        force_setattr(self, "table", table_name(self.table))


class BuildTurn(BuildRequest, frozen=True, kw_only=True):
    """A build as its job carries it: one that waits for vectors goes on in a job of its own."""

    embedding: str | None = None
    """The embedding job that an earlier turn of the same request waits for."""
