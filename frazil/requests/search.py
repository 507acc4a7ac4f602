"""Search requests: every field of POST /v1/search. What only the table can tell is left to it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from frazil.errors import InvalidInput, TooLarge
from frazil.requests.decode import Refusal, RequestWords
from frazil.requests.freshness import FreshRequest
from frazil.requests.texts import is_plain

Mode = Literal["vector", "text", "hybrid"]
Group = Literal["document", "chunk"]

DEFAULT_K = 10
MAX_K = 1_000
MAX_OFFSET = 9_999
MAX_FILTER = 10_000
"""Characters of a condition in SQL: of a search, a profile or a grant."""
MAX_QUERY_CHARACTERS = 10_000
MAX_DIMENSIONS = 16_384
DEFAULT_SNIPPET = 200
MAX_SNIPPET = 10_000
_MAX_NAMES = 200
_MAX_NAME = 200
_MAX_WEIGHT = 1_000
# The largest float of 32 bits: beyond it a vector would have infinities, and an integer may be beyond all floats.
_MAX_FLOAT32 = 3.4028234663852886e38
_EXAMPLE = '{"table": "notes", "query": "green tea"}'
_VECTOR = Refusal(
    f"`vector` is a list of 1 to {MAX_DIMENSIONS:,} numbers, each a float of 32 bits", "[0.1, -0.2, …]", "bad_vector"
)
_FIELDS = Refusal("`fields` is a list of text columns, or an object of column and weight", '["title", "body"]')
_WEIGHTS = Refusal("`weights` is an object of `vector` and `text`", '{"vector": 1, "text": 0.5}')
_FILTER = Refusal(
    f"`filter` is a condition in SQL of at most {MAX_FILTER:,} characters",
    "for example: lang = 'en' AND year >= 2020",
    "bad_filter",
)
_SNIPPET = Refusal(f"`snippet` is true, false, or a number of characters up to {MAX_SNIPPET:,}")

_Name = Annotated[str, Meta(max_length=_MAX_NAME)]
_Weight = Annotated[
    float, Meta(ge=0, le=_MAX_WEIGHT), Refusal(f"the weight of {{key}} is a number from 0 to {_MAX_WEIGHT:,}")
]


class SearchWeights(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The weight of each ranking in a hybrid search."""

    vector: Annotated[float, Meta(ge=0, le=_MAX_WEIGHT), Refusal("`weights.vector` is a number from 0 to 1,000")] = 1.0
    text: Annotated[float, Meta(ge=0, le=_MAX_WEIGHT), Refusal("`weights.text` is a number from 0 to 1,000")] = 1.0


class SearchRequest(FreshRequest, frozen=True, kw_only=True):
    """Words, a vector or both, and the table or the profile to search."""

    words: ClassVar[RequestWords] = RequestWords("a search", "bad_search", "a search is an object", _EXAMPLE)

    table: Annotated[str, Meta(pattern=r"\S", max_length=_MAX_NAME)] | None = None
    profile: Annotated[str, Meta(pattern=r"\S", max_length=_MAX_NAME)] | None = None
    query: (
        Annotated[
            str,
            Meta(pattern=r"\S", extra_json_schema={"maxLength": MAX_QUERY_CHARACTERS}),
            Refusal(f"`query` is a text of 1 to {MAX_QUERY_CHARACTERS:,} characters"),
        ]
        | None
    ) = None
    vector: (
        Annotated[
            list[Annotated[float, Meta(ge=-_MAX_FLOAT32, le=_MAX_FLOAT32)]],
            Meta(min_length=1, max_length=MAX_DIMENSIONS),
            _VECTOR,
        ]
        | None
    ) = None
    mode: Mode | None = None
    k: Annotated[int, Meta(ge=1, le=MAX_K)] | None = None
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] = 0
    min_score: Annotated[float, Refusal("min_score is a number")] | None = None
    weights: Annotated[SearchWeights, _WEIGHTS] = SearchWeights()
    fields: (
        Annotated[list[_Name], Meta(min_length=1, max_length=_MAX_NAMES), _FIELDS]
        | Annotated[dict[str, _Weight], Meta(min_length=1, max_length=_MAX_NAMES), _FIELDS]
        | None
    ) = None
    filter: Annotated[str, Meta(pattern=r"\S", max_length=MAX_FILTER), _FILTER] | None = None
    columns: (
        Annotated[
            list[_Name],
            Meta(max_length=_MAX_NAMES),
            Refusal("`columns` is a list of names", '["title"]; [] for none'),
        ]
        | None
    ) = None
    group: Group = "document"
    snippet: Annotated[bool | Annotated[int, Meta(ge=0, le=MAX_SNIPPET)], _SNIPPET] = True

    def __post_init__(self) -> None:
        if self.table is None and self.profile is None:
            raise _bad("a search names a `table` or a `profile`", _EXAMPLE)
        self._check_texts()
        if self.query is None and self.vector is None:
            raise _bad("a search needs a `query` in words, or a `vector`", _EXAMPLE)
        if not self.weights.vector and not self.weights.text:
            raise _bad("one of the weights is more than 0", _WEIGHTS.hint)
        if self.table is not None:
            _ = self.table_name
        _ = self.reads

    def _check_texts(self) -> None:
        if self.query is not None and len(self.query) > MAX_QUERY_CHARACTERS:
            raise TooLarge(
                f"the query has more than {MAX_QUERY_CHARACTERS:,} characters",
                code="query_too_large",
                hint="search for a part of it",
            )
        for name, most in (("table", _MAX_NAME), ("profile", _MAX_NAME), ("query", MAX_QUERY_CHARACTERS)):
            if not is_plain(getattr(self, name) or ""):
                raise _bad(f"`{name}` is a text of 1 to {most:,} characters")
        if not is_plain(self.filter or ""):
            raise _FILTER.error(self.filter, self.words.code)

    @property
    def table_name(self) -> str | None:
        """With its namespace; None where the profile says."""
        from frazil.events.declaration import table_name  # its room loads Arrow, which a client may not need

        return None if self.table is None else table_name(self.table)

    @property
    def condition(self) -> str | None:
        """The filter."""
        return None if self.filter is None else self.filter.strip()

    @property
    def field_weights(self) -> dict[str, float] | None:
        return dict.fromkeys(self.fields, 1.0) if isinstance(self.fields, list) else self.fields

    @property
    def shown_columns(self) -> tuple[str, ...] | None:
        """Each once, in their order; None for all."""
        return None if self.columns is None else tuple(dict.fromkeys(self.columns))

    @property
    def by_document(self) -> bool:
        return self.group == "document"

    @property
    def snippet_characters(self) -> int:
        """0 for none."""
        return DEFAULT_SNIPPET if self.snippet is True else int(self.snippet)


def _bad(message: str, hint: str = "") -> InvalidInput:
    return InvalidInput(message, code=SearchRequest.words.code, hint=hint)
