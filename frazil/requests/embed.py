"""Embed request: the vectors of a table by a model."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import force_setattr

from frazil.errors import InvalidInput
from frazil.events.declaration import MODEL_NAME, table_name
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.job_request import JobRequest

_CODE = "bad_embedding"
_Model = Annotated[
    str,
    Meta(pattern="^" + MODEL_NAME.pattern),
    Refusal(
        "{value} is not the name of a model",
        "as wordllama, or a name below [models.<name>]",
        quoted_characters=80,
    ),
]


class EmbedRequest(JobRequest, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        noun="an embedding",
        code=_CODE,
        shape="an embedding is an object with `table`",
        example='{"table": "notes", "model": "wordllama"}',
    )

    table: str
    model: _Model | None = None
    """None: the table's."""
    shadow: Annotated[bool, Refusal("`shadow` is true or false", '"shadow": true')] = False
    """Embed with the model, and leave the table's as it is."""
    retry: Annotated[bool, Refusal("`retry` is true or false", '"retry": true')] = False
    """Try again also what was refused before."""
    sweep: Annotated[bool, Refusal("`sweep` is true or false", '"sweep": true')] = False
    """Then take away what is not of any chunk of today."""

    def __post_init__(self) -> None:
        if self.shadow and self.model is None:
            raise InvalidInput("a shadow is another model than the table's", code=_CODE, hint="name it: `model`")
        force_setattr(self, "table", table_name(self.table))
