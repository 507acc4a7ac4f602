"""Token requests: every field of POST /v1/tokens and of a rotation, and grants as they are declared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from frazil.errors import InvalidInput
from frazil.requests.decode import Refusal, Request, RequestWords
from frazil.requests.search import MAX_FILTER

MAX_GRANTS = 200
# Not \Z, which the regular expressions of JSON schemas do not have.
MASK = r"^(?:null|redact|hash(?:\([a-z][a-z0-9_]{0,62}\))?)$(?!\n)"
_MAX_NAME = 200
_MAX_LIFE = timedelta(days=3653)
_MAX_GRACE_SECONDS = 30 * 86_400.0
_MAX_RATE = 1_000_000
_NAME = Refusal(f"`name` is a text of at most {_MAX_NAME} characters", "say who uses the token and what for")
_EXPIRY = Refusal(
    "`expires_at` is a time with its zone, in the future and within ten years",
    "for example 2030-01-31T12:00:00Z",
    "bad_expiry",
)
_GRANTS = Refusal(f"`grants` is a list of 1 to {MAX_GRANTS} grants", '["sql", "read:notes"]', "bad_grant")
_WHERE = Refusal(f"`where` is a condition in SQL of at most {MAX_FILTER:,} characters", "for example: team = 'north'")
_MASKS = Refusal(
    "`mask` is a list of columns, or an object of column and null, hash, hash(domain) or redact",
    '{"email": "hash"}; a domain is a word of a-z, 0-9 and _, as in {"email": "hash(people)"}',
)
_ANY_GRANT = {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/GrantRequest"}]}


class GrantRequest(Request, frozen=True, kw_only=True):
    """A grant that shows only some rows, or masks columns."""

    words: ClassVar[RequestWords] = RequestWords(
        "a grant",
        "bad_grant",
        "a grant is a scope, or an object with `scope`",
        '{"scope": "read:notes", "mask": ["email"]}',
        unknown_field_code="bad_grant",
    )

    scope: str
    where: Annotated[str, Meta(pattern=r"\S", max_length=MAX_FILTER), _WHERE] | None = None
    mask: Annotated[list[str], _MASKS] | Annotated[dict[str, Annotated[str, Meta(pattern=MASK)]], _MASKS] | None = None

    def __post_init__(self) -> None:
        if "\0" in (self.where or ""):
            raise _WHERE.error(self.where, self.words.code)

    @property
    def masks(self) -> dict[str, str]:
        """The mask of each column; those of a list are masked by null."""
        masks = dict.fromkeys(self.mask, "null") if isinstance(self.mask, list) else self.mask or {}
        return dict(sorted(masks.items()))


class TokenRequest(Request, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        "a token",
        "bad_token_request",
        "the body is an object with name, grants, expires_in_s, expires_at, rate_per_second, burst",
        unknown_fields_first=True,
    )

    grants: Annotated[
        list[Annotated[Any, Meta(extra_json_schema=_ANY_GRANT)]], Meta(min_length=1, max_length=MAX_GRANTS), _GRANTS
    ]
    name: Annotated[str, Meta(pattern=r"\S", max_length=_MAX_NAME), _NAME]
    expires_in_s: Annotated[float, Meta(ge=1, le=_MAX_LIFE.total_seconds())] | None = None
    expires_at: Annotated[str, _EXPIRY] | None = None
    rate_per_second: Annotated[float, Meta(ge=0.001, le=_MAX_RATE)] | None = None
    burst: Annotated[int, Meta(ge=1, le=_MAX_RATE)] | None = None

    def __post_init__(self) -> None:
        if not self.name.isprintable():
            raise _NAME.error(self.name, self.words.code)
        if self.expires_at is not None and self.expires_in_s is not None:
            raise InvalidInput(
                "`expires_at` and `expires_in_s` say the same thing", code="bad_expiry", hint="give one of them"
            )

    def expiry(self, now: datetime) -> datetime | None:
        """The end of its life; None for a token without one."""
        if self.expires_in_s is not None:
            return now + timedelta(seconds=self.expires_in_s)
        if self.expires_at is None:
            return None
        try:
            given = datetime.fromisoformat(self.expires_at)
            moment = given.astimezone(UTC) if given.tzinfo else None
        except (ValueError, OverflowError):
            moment = None
        if moment is None or not now < moment <= now + _MAX_LIFE:
            raise _EXPIRY.error(self.expires_at, self.words.code)
        return moment


class RotationRequest(Request, frozen=True, kw_only=True):
    """How much longer the old secret works."""

    words: ClassVar[RequestWords] = RequestWords(
        "a rotation", "bad_token_request", "the body is an object with grace_s"
    )

    grace_s: Annotated[float, Meta(ge=0, le=_MAX_GRACE_SECONDS)] = 0.0
