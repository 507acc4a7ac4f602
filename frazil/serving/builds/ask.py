"""What somebody wants built: the request, checked field by field."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from frazil.embedding import OWN
from frazil.errors import InvalidInput
from frazil.events.declaration import TableSpec, table_name
from frazil.serving.profiles import Profile

KIND = "build"
_FIELDS = ("table", "profile", "force", "embedding")


@dataclass(frozen=True)
class BuildAsk:
    table: str
    profile: str | None = None
    """Build what this profile is answered from."""
    force: bool = False
    """Also when nothing has changed since the current artifact."""
    embedding: str | None = None
    """The embedding job that an earlier turn of the same request waits for."""

    def params(self) -> dict[str, Any]:
        """As the job carries it; `parse_build` of it gives this again."""
        return asdict(self)


def parse_build(body: Any) -> BuildAsk:
    """A request from JSON, or `InvalidInput` that says what would be right."""
    if not isinstance(body, dict) or not isinstance(body.get("table"), str):
        raise _bad("a build is an object with `table`", '{"table": "notes"}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS[:3], n=1)
            hint = f"did you mean {close[0]!r}?" if close else "its fields are table, profile and force"
            raise InvalidInput(f"a build has no field {str(name)[:80]!r}", code="unknown_field", hint=hint)
    profile, force, embedding = body.get("profile"), body.get("force", False), body.get("embedding")
    if profile is not None and not isinstance(profile, str):
        raise _bad("`profile` is the name of a profile", "frazil profiles list")
    if not isinstance(force, bool):
        raise _bad("`force` is true or false", '"force": true')
    return BuildAsk(table_name(body["table"]), profile, force, embedding)


def is_searched(spec: TableSpec) -> bool:
    return spec.searched is not None and spec.kind in ("log", "entity")


def model_of(spec: TableSpec, profile: Profile | None = None) -> str:
    """The model whose vectors are searched; `InvalidInput` for a table that is not searched."""
    if spec.kind == "history":
        raise _bad(f"{spec.short_name!r} is a history", "build its entity")
    if spec.searched is None:
        raise _bad(
            f"{spec.short_name!r} has no text to search",
            'declare it with columns of text, as in "text": ["title", "body"], or with a `vector`',
        )
    if not is_searched(spec):
        raise _bad(
            f"{spec.short_name!r} takes no events, and is not searched", "load into a table of kind log or entity"
        )
    if profile is not None and profile.model is not None:
        return profile.model
    return OWN if spec.searched.vector is not None else spec.searched.model


def must_be_of(profile: Profile, spec: TableSpec) -> None:
    """Refuse a profile of another table."""
    if profile.table != spec.name:
        raise _bad(f"the profile {profile.name!r} is of another table", f"it is of {profile.table!r}")


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_build", hint=hint)
