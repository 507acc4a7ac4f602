"""Settings of the Spark pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from frazil.errors import Misconfigured


class PipelineSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    master: str = Field(
        default="local[2]", pattern=r"^(local(\[.+\])?|spark://.+|k8s://.+|yarn)$", description="The Spark master."
    )
    driver_memory: str = Field(default="1g", pattern=r"^[1-9][0-9]*[mg]$", description="Heap of the Spark driver.")
    max_batch_rows: int = Field(
        default=500_000, gt=0, description="A commit takes at most this many events of a table."
    )
    max_batch_bytes: ByteSize = Field(
        default=ByteSize(128 << 20), gt=0, description="A commit takes at most this many bytes of a table from the bus."
    )
    max_batch_age_seconds: float = Field(
        default=1.0, gt=0, le=3600, description="An event waits at most this long for others to be committed with it."
    )
    parallel_tables: int = Field(default=4, ge=1, le=64, description="How many tables commit side by side.")
    degraded_after_failures: int = Field(
        default=3, ge=1, description="After this many failures in a row a table counts as degraded."
    )
    snapshot_budget: int = Field(default=100, ge=1, description="Routine expiry keeps this many snapshots of a table.")
    fold_rows: int = Field(
        default=50_000, ge=1, description="So many committed events of an entity are folded into its state at once."
    )
    fold_age_seconds: float = Field(
        default=60.0, gt=0, description="A committed event of an entity waits at most this long for its fold to begin."
    )
    embed_seconds: float = Field(
        default=900.0,
        ge=0,
        description="New rows of a searched table wait at most this long for their embedding to begin; 0: for ever.",
    )
    embed_after_rows: int = Field(
        default=10_000, ge=1, description="So many new rows of a searched table are embedded at once."
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Further Spark settings, as in [pipeline.spark_conf]; in the file none that is a secret.",
    )
    spark_secrets_file: Path | None = Field(
        default=None, description="File of mode 0600 with Spark settings that are secrets, a line of key = value each."
    )

    @field_validator("spark_conf", mode="before")
    @classmethod
    def _as_spark_writes_them(cls, value: Any) -> Any:
        """Spark's keys have dots, which TOML reads as tables inside tables; and its values are all text."""
        return flat_settings(value) if isinstance(value, Mapping) else value


def flat_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    """Spark's settings by their dotted keys."""
    return dict(_flat(value, ""))


def _flat(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found += _flat(inner, f"{prefix}{key}.")
        else:
            found.append((prefix + key, str(inner).lower() if isinstance(inner, bool) else str(inner)))
    return found


class SourceSettings(BaseModel):
    """`[sources.<name>]`. The DSN itself is a secret and never stands here."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    dsn_env: str | None = Field(default=None, description="Environment variable that holds the DSN.")
    dsn_file: Path | None = Field(default=None, description="File of mode 0600 whose only line is the DSN.")
    ca_file: Path | None = Field(
        default=None, description="Certificates of the authorities that a server with sslmode=verify-full may have."
    )
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
        default=ByteSize(256 << 20),
        ge=1 << 20,
        description="A table is read in parallel ranges of about this size, or of less so that every core has one.",
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
    retention_years: float | None = Field(
        default=None, gt=0, description="How many years an archive keeps its nights; for ever where it is not set."
    )
    archive_at: str = Field(
        default="",
        pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9])?$",
        description="When `frazil up` archives the source each night, as in 02:30 (UTC); never where it is empty.",
    )
    nan: Literal["error", "null"] = Field(
        default="error", description="A NaN in a numeric(p,s) column: error, or null."
    )
    infinity: Literal["error", "null", "clamp"] = Field(
        default="error", description="An infinite date or timestamp: error, null, or clamp to the years 1 and 9999."
    )
    nested_arrays: Literal["error", "null"] = Field(
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


class WatchSettings(BaseModel):
    """`[watch.<name>]`: files that are dropped into a folder are loaded, each once, and again when they change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path = Field(description="The folder; it is looked at, nothing in it is moved or deleted.")
    table: str = Field(min_length=1, description="The table, made from the first files if it is not there.")
    pattern: str = Field(default="*", min_length=1, description="Which files: a pattern with * and ?.")
    mode: Literal["append", "replace"] = Field(default="append", description="What a load does with earlier rows.")
    max_bad: str = Field(default="5%", description="Bad records that a load may have: a number, or as in 5%.")
    look_seconds: float = Field(default=2.0, ge=0.1, description="How often to look; a file must be still that long.")


class MailSettings(BaseModel):
    """`[mail]`: reports are sent only if `host`, `sender` and `recipients` are set."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field(default="", description="The SMTP server; none where it is empty.")
    port: int = Field(default=587, ge=1, le=65535, description="Its port.")
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="How the connection is encrypted; `none` only for a server on this machine."
    )
    user: str = Field(default="", description="Who signs in; nobody where it is empty.")
    password: SecretStr | None = Field(default=None, description="Only from FRAZIL_MAIL__PASSWORD.")
    sender: str = Field(default="", description="From whom reports are.")
    recipients: tuple[str, ...] = Field(default=(), description="To whom reports go.")

    @property
    def is_on(self) -> bool:
        return bool(self.host and self.sender and self.recipients)
