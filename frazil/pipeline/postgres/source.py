"""A named Postgres to read from: its settings, and its DSN out of the environment or a file that is private."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ByteSize, ConfigDict, Field, field_validator, model_validator

from frazil.errors import Misconfigured
from frazil.pipeline.postgres.dsn import Dsn, parse_dsn
from frazil.pipeline.postgres.link import Patience
from frazil.pipeline.postgres.types import Infinity, Leniency, Otherwise


class SourceSettings(BaseModel):
    """`[sources.<name>]`. The DSN itself is a secret and never stands here."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    dsn_env: str | None = Field(default=None, description="Environment variable that holds the DSN.")
    dsn_file: Path | None = Field(default=None, description="File of mode 0600 whose only line is the DSN.")
    tables: tuple[str, ...] = Field(
        default=("*",), min_length=1, description="Tables to read: names, patterns with * and ?, or * for all."
    )
    exclude: tuple[str, ...] = Field(default=(), description="Names and patterns that are left out.")
    in_schema: str = Field(
        default="public",
        min_length=1,
        validation_alias=AliasChoices("schema", "in_schema"),
        serialization_alias="schema",
        description="Schema of the database that the tables are in.",
    )
    range_bytes: ByteSize = Field(
        default=ByteSize(64 << 20), ge=1 << 20, description="A table is read in parallel ranges of about this size."
    )
    batch_bytes: ByteSize = Field(
        default=ByteSize(8 << 20), ge=64 << 10, description="About how many bytes of rows a reader holds at once."
    )
    fetch_rows: int = Field(default=100_000, ge=1, description="A reader hands on at most this many rows at once.")
    connect_timeout_seconds: int = Field(default=10, ge=2, description="How long to wait for a connection.")
    lock_timeout_seconds: int = Field(
        default=30, ge=1, description="How long to wait for a table that is being altered, before the others go on."
    )
    statement_timeout_seconds: int = Field(
        default=3600, ge=0, description="How long one range may take to read; 0 means for ever."
    )
    nan: Otherwise = Field(default="error", description="A NaN in a numeric(p,s) column: error, or null.")
    infinity: Infinity = Field(
        default="error", description="An infinite date or timestamp: error, null, or clamp to the years 1 and 9999."
    )
    nested_arrays: Otherwise = Field(
        default="error", description="An array of several dimensions in a column declared with one: error, or null."
    )

    @field_validator("tables", "exclude", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("dsn_env", "dsn_file", mode="before")
    @classmethod
    def _no_dsn_here(cls, value: Any) -> Any:
        if isinstance(value, str) and ("://" in value or "=" in value or "@" in value):
            raise Misconfigured(
                "dsn_env or dsn_file of a source holds a DSN instead of saying where it is",
                code="secret_in_file",
                hint="dsn_env is the name of a variable, dsn_file a path; "
                "and change the password, it may have been copied with the file",
            )
        return value

    @model_validator(mode="after")
    def _one_place(self) -> SourceSettings:
        if self.dsn_env is not None and self.dsn_file is not None:
            raise ValueError("a source has dsn_env or dsn_file, not both")
        return self

    @property
    def patience(self) -> Patience:
        return Patience(self.connect_timeout_seconds, self.lock_timeout_seconds, self.statement_timeout_seconds)

    @property
    def leniency(self) -> Leniency:
        return Leniency(self.nan, self.infinity, self.nested_arrays)


def read_dsn(name: str, settings: SourceSettings, environment: Mapping[str, str] | None = None) -> Dsn:
    """The DSN of the source `name`; says what to write where if there is none."""
    environment = os.environ if environment is None else environment
    if settings.dsn_file is not None:
        path = settings.dsn_file.expanduser()
        return parse_dsn(_private_line(name, path), str(path))
    if settings.dsn_env is None:
        raise Misconfigured(
            f"the source {name!r} does not say where its DSN is",
            code="dsn_missing",
            hint=f'write dsn_env = "A_VARIABLE" or dsn_file = "a/path" below [sources.{name}]',
        )
    if not environment.get(settings.dsn_env):
        raise Misconfigured(
            f"the environment variable {settings.dsn_env} (dsn_env of the source {name!r}) is not set",
            code="dsn_missing",
            hint=f"set {settings.dsn_env}=postgresql://user:password@host:5432/database",
        )
    return parse_dsn(environment[settings.dsn_env], settings.dsn_env)


def _private_line(name: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            # Asked of the open file: what was looked at is what is read.
            status = os.fstat(file.fileno())
            mode = stat.S_IMODE(status.st_mode)
            if mode != 0o600:
                raise Misconfigured(
                    f"{path} (dsn_file of the source {name!r}) has mode {mode:04o}",
                    code="secret_file_mode",
                    hint=f"chmod 600 {path}",
                )
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Misconfigured(
            f"{path} (dsn_file of the source {name!r}) cannot be read: {why}",
            code="bad_secret_file",
            hint="make it a text file of mode 0600 that belongs to you",
        ) from None
