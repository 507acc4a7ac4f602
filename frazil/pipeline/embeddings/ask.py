"""What somebody wants embedded: the request, checked field by field."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from frazil.embedding import OWN
from frazil.errors import Conflict, InvalidInput
from frazil.events.declaration import MODEL_NAME, TableSpec, table_name

KIND = "embed"
_FIELDS = ("table", "model", "shadow", "retry", "sweep")


@dataclass(frozen=True)
class EmbedAsk:
    table: str
    model: str | None = None
    """None: the table's."""
    shadow: bool = False
    """Embed with the model, and leave the table's as it is."""
    retry: bool = False
    """Try again also what was refused before."""
    sweep: bool = False
    """Then take away what is not of any chunk of today."""

    def params(self) -> dict[str, Any]:
        """As the job carries it; `parse_embed` of it gives this again."""
        return asdict(self)


def parse_embed(body: Any) -> EmbedAsk:
    """A request from JSON, or `InvalidInput` that says what would be right."""
    if not isinstance(body, dict) or not isinstance(body.get("table"), str):
        raise _bad("an embedding is an object with `table`", '{"table": "notes", "model": "wordllama"}')
    for name in body:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(_FIELDS)}"
            raise InvalidInput(f"an embedding has no field {str(name)[:80]!r}", code="unknown_field", hint=hint)
    model = body.get("model")
    if model is not None and (not isinstance(model, str) or not MODEL_NAME.match(model)):
        raise _bad(f"{str(model)[:80]!r} is not the name of a model", "as wordllama, or a name below [models.<name>]")
    flags = {name: body.get(name, False) for name in ("shadow", "retry", "sweep")}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise _bad(f"`{name}` is true or false", f'"{name}": true')
    if flags["shadow"] and model is None:
        raise _bad("a shadow is another model than the table's", "name it: `model`")
    return EmbedAsk(table_name(body["table"]), model, **flags)


def model_of(spec: TableSpec) -> str:
    """The model that the table is searched with; `InvalidInput` for a table that is not."""
    if spec.kind == "history":
        raise _bad(f"{spec.short_name!r} is a history", "embed its entity")
    if spec.searched is None:
        raise _bad(
            f"{spec.short_name!r} has no text to search",
            'declare it with columns of text, as in "text": ["title", "body"], or with a `vector`',
        )
    if not spec.is_streamed:
        raise _bad(
            f"{spec.short_name!r} takes no events, so that its rows have no ids to be found by",
            "load into a table of kind log or entity",
        )
    return OWN if spec.searched.vector is not None else spec.searched.model


def check_model(spec: TableSpec, asked: EmbedAsk) -> str:
    """The model to embed with, if the table can have it."""
    of_table = model_of(spec)
    wanted = asked.model or of_table
    if wanted == OWN and of_table != OWN:
        raise _bad(f"{spec.short_name!r} has no column of vectors", 'declare one: "search": {"vector": "embedding"}')
    if wanted != OWN and not spec.text:
        raise _bad(f"{spec.short_name!r} names no columns of text, only vectors of its own", f"--model {OWN}")
    if of_table == OWN and wanted != OWN and not asked.shadow:
        raise Conflict(
            f"{spec.short_name!r} is searched by the vectors in {spec.searched and spec.searched.vector!r}",
            code="own_vectors",
            hint="embed its text beside them with --shadow",
        )
    return wanted


def _bad(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, code="bad_embedding", hint=hint)
