"""Model choice: the model whose vectors an artifact is built of."""

from __future__ import annotations

from frazil.embedding import OWN
from frazil.errors import InvalidInput
from frazil.events.declaration import TableSpec
from frazil.serving.profiles import Profile


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
