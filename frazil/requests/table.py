"""Table requests: every field of POST and PATCH /v1/tables, of their columns, checks and search.

They check the shape of a declaration. The rules about types, keys, partitions and search columns are in
`frazil.events.declaration`, which `spec` applies.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from frazil.events.declaration import (
    MAX_CHUNK_SIZE,
    MAX_LISTED,
    MAX_PATTERN,
    MIN_CHUNK_SIZE,
    ChunkBoundary,
    Limit,
    Snapshots,
    TableSpec,
    UnknownFields,
    parse_table,
)
from frazil.requests.decode import Refusal, Request, RequestWords, decode_part

_MAX_TEXT = 10_000
_MAX_SHORT_TEXT = 200
# Not \Z, which the regular expressions of JSON schemas do not have.
_MODEL = r"^[a-z][a-z0-9_-]{0,62}$(?!\n)"
_DECLARATION = "bad_declaration"
NOT_A_TABLE = Refusal(
    "{value} is not a table name",
    "use a-z, 0-9 and _, beginning with a letter, at most 63 characters: `name` or `namespace.name`",
    "bad_table_name",
    80,
)
NOT_COLUMNS = Refusal("`columns` is an object of name and type", '{"amount": "long"}', "bad_columns")
_KIND = Refusal(
    "there are no tables of kind {value}",
    'declare it with kind "log" or "entity", or "bulk" for one that only loads write to',
    "unsupported_kind",
)
_POLICY = Refusal("unknown_fields {value} is no policy", "evolve, keep or reject", "bad_policy")
_SNAPSHOTS = Refusal("keep_snapshots {value} is no policy", "budget or all", "bad_policy")


def _text(name: str) -> Refusal:
    return Refusal(f"`{name}` is a text of at most {_MAX_TEXT:,} characters", code=_DECLARATION)


def _texts(name: str) -> Refusal:
    return Refusal(f"`{name}` is a list of texts of 1 to {_MAX_SHORT_TEXT} characters", code=_DECLARATION)


def _flag(name: str) -> Refusal:
    return Refusal(f"`{name}` is true or false", f'for example {{"{name}": true}}')


def _above_zero(name: str, unit: str) -> Refusal:
    return Refusal(f"`{name}` is a number of {unit} above 0", code=_DECLARATION)


def schema_reference(*names: str, or_text: bool = False) -> Meta:
    """The JSON schema of a value that is one of these requests."""
    references: list[dict[str, Any]] = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return Meta(extra_json_schema={"anyOf": [*([{"type": "string"}] if or_text else []), *references]})


_Text = Annotated[str, Meta(max_length=_MAX_TEXT)]
_ShortText = Annotated[str, Meta(min_length=1, max_length=_MAX_SHORT_TEXT)]
_Texts = _ShortText | list[_ShortText]
AnyColumn = Annotated[Any, schema_reference("ColumnRequest", or_text=True)]
_AnySearch = Annotated[Any, schema_reference("TableSearchRequest")]
_Seconds = Annotated[float, Meta(gt=0), _above_zero("freshness_target_seconds", "seconds")]
_Years = Annotated[float, Meta(gt=0), _above_zero("retention_years", "years")]


class ChecksRequest(Request, frozen=True, kw_only=True):
    """The checks of a column."""

    words: ClassVar[RequestWords] = RequestWords(
        "`checks`",
        "bad_check",
        "checks are an object",
        'for example {"not_null": true}',
        unknown_field_code="bad_check",
    )
    null_is_a_value: ClassVar[frozenset[str]] = frozenset({"not_null", "unique"})

    not_null: Annotated[bool, _flag("not_null")] = False
    range: (
        Annotated[
            dict[Literal["min", "max"], bool | Limit | None],
            Meta(min_length=1),
            Refusal("a range has `min`, `max` or both", 'for example {"range": {"min": 0}}'),
        ]
        | None
    ) = None
    one_of: (
        Annotated[
            list[bool | Limit | None],
            Meta(min_length=1, max_length=MAX_LISTED),
            Refusal(f"one_of is a list of 1 to {MAX_LISTED:,} values", 'for example {"one_of": ["open", "paid"]}'),
        ]
        | None
    ) = None
    pattern: (
        Annotated[
            str,
            Meta(min_length=1, max_length=MAX_PATTERN),
            Refusal(f"a pattern is a text of 1 to {MAX_PATTERN:,} characters", 'for example "[A-Z]{3}"'),
        ]
        | None
    ) = None
    unique: Annotated[bool, _flag("unique")] = False


class ColumnRequest(Request, frozen=True, kw_only=True):
    """A column with more than its type."""

    words: ClassVar[RequestWords] = RequestWords(
        "a column",
        "bad_column",
        "a column is declared by its type, or by an object with `type`",
        'for example "amount": "decimal(12,2)" or "email": {"type": "string", "sensitivity": "pii"}',
        key_field="type",
    )
    empty_means_default: ClassVar[frozenset[str]] = frozenset({"description", "sensitivity"})
    null_is_a_value: ClassVar[frozenset[str]] = frozenset({"required"})

    type: Annotated[str, Refusal("{value} is not a type", 'as in "type": "string"', "bad_type", 80)]
    required: Annotated[bool, Refusal("`required` is true or false", code=_DECLARATION)] = False
    description: Annotated[_Text, _text("description")] = ""
    sensitivity: Annotated[_Text, _text("sensitivity")] = ""
    checks: Annotated[Any, schema_reference("ChecksRequest")] = None

    def __post_init__(self) -> None:
        if self.checks is not None:
            decode_part(self.checks, ChecksRequest, "its checks")


class ChunkingRequest(Request, frozen=True, kw_only=True):
    """The length of chunks, and where texts are cut."""

    words: ClassVar[RequestWords] = RequestWords(
        "`chunk`", "bad_search", "`chunk` is an object", "its fields are size, overlap, by", "bad_search"
    )

    size: (
        Annotated[
            int,
            Meta(ge=MIN_CHUNK_SIZE, le=MAX_CHUNK_SIZE),
            Refusal(
                f"`size` is a whole number of {MIN_CHUNK_SIZE} to {MAX_CHUNK_SIZE:,} characters, not {{value}}",
                'for example "size": 800',
            ),
        ]
        | None
    ) = None
    overlap: (
        Annotated[
            int,
            Meta(ge=0),
            Refusal(
                "`overlap` is a whole number of characters from 0 to half of the size, not {value}",
                'for example "overlap": 100',
            ),
        ]
        | None
    ) = None
    by: Annotated[ChunkBoundary, Refusal("chunks by {value}", "by is heading, sentence or none")] | None = None


class TableSearchRequest(Request, frozen=True, kw_only=True):
    """The model, chunks and vectors that a table is searched with."""

    words: ClassVar[RequestWords] = RequestWords(
        "`search`", "bad_search", "`search` is an object", "its fields are model, chunk, vector", "bad_search"
    )

    model: (
        Annotated[
            str,
            Meta(pattern=_MODEL),
            Refusal(
                "{value} is not the name of a model",
                "use a-z, 0-9, _ and -, beginning with a letter: wordllama, or a name below [models.<name>]",
                quoted_characters=80,
            ),
        ]
        | None
    ) = None
    chunk: Annotated[Any, schema_reference("ChunkingRequest")] = None
    vector: Annotated[str, Refusal("`vector` is the name of a column", 'for example "vector": "embedding"')] | None = (
        None
    )

    def __post_init__(self) -> None:
        if self.chunk is not None:
            decode_part(self.chunk, ChunkingRequest, "`search`")


class CreateTableRequest(Request, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        "a table",
        _DECLARATION,
        "a table is declared by an object with `name` and `columns`",
        '{"name": "orders", "columns": {"amount": "long"}}',
        unknown_fields_first=True,
        key_field="name",
    )
    empty_means_default: ClassVar[frozenset[str]] = frozenset(
        {"kind", "key", "partition", "unknown_fields", "description", "owner", "tags", "text", "keep_snapshots"}
    )

    name: Annotated[str, NOT_A_TABLE]
    columns: Annotated[dict[str, AnyColumn], NOT_COLUMNS]
    kind: Annotated[
        # A history is refused by its name, with the reason.
        Literal["log", "entity", "bulk", "history"], Meta(extra_json_schema={"enum": ["log", "entity", "bulk"]}), _KIND
    ] = "log"
    key: Annotated[_Texts, _texts("key")] = msgspec.field(default_factory=list)
    partition: Annotated[_Texts, _texts("partition")] = msgspec.field(default_factory=list)
    unknown_fields: Annotated[UnknownFields, _POLICY] = "reject"
    description: Annotated[_Text, _text("description")] = ""
    owner: Annotated[_Text, _text("owner")] = ""
    tags: Annotated[_Texts, _texts("tags")] = msgspec.field(default_factory=list)
    text: Annotated[_Texts, _texts("text")] = msgspec.field(default_factory=list)
    search: _AnySearch = None
    freshness_target_seconds: _Seconds | None = None
    retention_years: _Years | None = None
    keep_snapshots: Annotated[Snapshots, _SNAPSHOTS] = "budget"

    def __post_init__(self) -> None:
        check_columns(self.columns)
        _check_search(self.search)

    def declaration(self) -> dict[str, Any]:
        """As `parse_table` reads it."""
        return dict(msgspec.to_builtins(self))

    def spec(self) -> TableSpec:
        """The table, by all rules of declarations."""
        return parse_table(self.declaration())


class AlterTableRequest(Request, frozen=True, kw_only=True):
    """Changes of a table. A field that is not given stays as it is; null takes it away."""

    words: ClassVar[RequestWords] = RequestWords(
        "an alteration",
        "bad_alteration",
        "an alteration is an object with at least one field",
        '{"add_columns": {"note": "string"}}',
        unknown_fields_first=True,
        may_be_empty=False,
    )
    empty_means_default: ClassVar[frozenset[str]] = frozenset(
        {"add_columns", "widen", "description", "owner", "tags", "text"}
    )
    null_is_a_value: ClassVar[frozenset[str]] = frozenset(
        {"description", "owner", "tags", "text", "search", "freshness_target_seconds", "retention_years"}
    )

    add_columns: Annotated[
        dict[str, AnyColumn], Refusal("`add_columns` is an object of name and type", '{"a": "long"}', "bad_columns")
    ] = msgspec.field(default_factory=dict)
    widen: Annotated[
        dict[str, AnyColumn], Refusal("`widen` is an object of name and type", '{"amount": "long"}', "bad_columns")
    ] = msgspec.field(default_factory=dict)
    description: Annotated[_Text, _text("description")] | UnsetType | None = UNSET
    owner: Annotated[_Text, _text("owner")] | UnsetType | None = UNSET
    tags: Annotated[_Texts, _texts("tags")] | UnsetType | None = UNSET
    text: Annotated[_Texts, _texts("text")] | UnsetType | None = UNSET
    search: _AnySearch | UnsetType = UNSET
    freshness_target_seconds: _Seconds | UnsetType | None = UNSET
    retention_years: _Years | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        check_columns(self.add_columns)
        check_columns(self.widen)
        if self.search is not UNSET:
            _check_search(self.search)

    def changes(self) -> dict[str, Any]:
        """The fields that were given, a null among them."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if value != {} or name == "search"}


def check_columns(columns: dict[str, Any]) -> None:
    """Check the shape of columns that have more than a type."""
    for name, column in columns.items():
        if not isinstance(column, str):
            decode_part(column, ColumnRequest, f"column {name[:80]!r}")


def _check_search(search: Any) -> None:
    if search is not None:
        decode_part(search, TableSearchRequest, "the table")
