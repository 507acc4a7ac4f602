"""CSV dialect and options: the signs of a file, and what the caller states about it."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.errors import InvalidInput

RANGE_BYTES = 16 << 20
MAX_RECORD_BYTES = 16 << 20


@dataclass(frozen=True)
class Dialect:
    """The signs of one file, each a single ASCII character."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None


@dataclass(frozen=True)
class CsvOptions:
    """What the caller states about a file; None is detected. A `quote` of "" means that nothing is quoted.

    `null_words` are the unquoted fields that mean null beside the empty one.
    """

    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    header: bool | None = None
    encoding: str | None = None
    null_words: tuple[str, ...] = ()
    range_bytes: int = RANGE_BYTES
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        for what, sign in (("delimiter", self.delimiter), ("quote", self.quote or None), ("escape", self.escape)):
            if sign is not None and (len(sign) != 1 or not "\0" < sign < "\x7f" or sign in "\r\n"):
                raise InvalidInput(
                    f"the {what} {sign!r} is not one ASCII character",
                    code="bad_csv_option",
                    hint="for example , or ; or | or a tab",
                )
        signs = [sign for sign in (self.delimiter, self.quote, self.escape) if sign]
        if len(set(signs)) != len(signs):
            raise InvalidInput(
                "delimiter, quote and escape must differ",
                code="bad_csv_option",
                hint="a quote inside of a quoted field is doubled; that needs no escape",
            )
