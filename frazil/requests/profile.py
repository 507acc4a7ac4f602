"""Profile requests: every field of PUT /v1/profiles/{name}. What only the table can tell is left to it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from frazil.requests.decode import Refusal, Request, RequestWords
from frazil.requests.search import DEFAULT_K, MAX_FILTER, MAX_K, Mode

_MODEL = Refusal(
    "{value} is not the name of a model", "wordllama, or a name below [models.<name>]", quoted_characters=80
)
_MODE = Refusal("there is no mode {value}", "one of vector, text, hybrid")


class ProfileRequest(Request, frozen=True, kw_only=True):
    """A table, and where it says so a model, an index, a filter and the shape of answers."""

    words: ClassVar[RequestWords] = RequestWords(
        "a profile",
        "bad_profile",
        "a profile is an object with a `table`",
        '{"table": "notes", "filter": "lang = \'en\'", "k": 5}',
        unknown_field_code="bad_profile",
    )

    name: Annotated[Any, Meta(extra_json_schema={"type": "string"})] = None
    """As in the path, if it is there at all: what is shown may be sent back."""
    table: str
    model: Annotated[str, _MODEL] | None = None
    index: Annotated[Any, Meta(extra_json_schema={"type": ["string", "object", "null"]})] = None
    """A kind, or an object of kind and parameters."""
    filter: (
        Annotated[
            str,
            Meta(pattern=r"\S", max_length=MAX_FILTER),
            Refusal("`filter` is a condition in SQL", "for example \"lang = 'en'\""),
        ]
        | None
    ) = None
    mode: Annotated[Mode, _MODE] | None = None
    k: (
        Annotated[
            int,
            Meta(ge=1, le=MAX_K),
            Refusal(f"`k` is a whole number from 1 to {MAX_K:,}", f"leave it out for {DEFAULT_K}"),
        ]
        | None
    ) = None
    columns: Annotated[tuple[str, ...], Refusal("`columns` is a list of names", '["title"]')] | None = None

    def __post_init__(self) -> None:
        from frazil.events.declaration import MODEL_NAME  # its room loads Arrow, which a client may not need

        if self.model is not None and not MODEL_NAME.match(self.model):
            raise _MODEL.error(self.model, self.words.code)
