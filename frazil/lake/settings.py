"""Settings of the catalog and of the maintenance of its tables."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, field_validator


class CatalogSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=None,
        pattern=r"^(sqlite:///.+|postgres(ql)?(\+[a-z0-9]+)?://.+)",
        description="sqlite:////a/file.db or postgresql://host/database; left out, `catalog.db` in the data directory.",
    )
    name: str = Field(
        default="frazil",
        pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$",
        description="Catalog name inside the database; every engine that opens the tables must use the same.",
    )
    user: str | None = Field(default=None, description="User name for the catalog database.")
    password: SecretStr | None = Field(default=None, description="Password for the catalog database.")
    password_file: Path | None = Field(default=None, description="File of mode 0600 whose only line is the password.")

    @field_validator("url")
    @classmethod
    def _no_options(cls, value: str | None) -> str | None:
        """Spark's driver takes names of classes and files as options, and PyIceberg's takes none."""
        if value is not None and not value.startswith("sqlite:") and "?" in value:
            raise ValueError("the address of a catalog has no options")
        return value


class MaintenanceSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="Whether the pipeline maintains the tables by itself.")
    interval_seconds: float = Field(default=300.0, gt=0, description="How often each table is examined.")
    target_file_bytes: ByteSize = Field(
        default=ByteSize(128 << 20), gt=0, description="Compaction writes files of about this size."
    )
    small_file_share: float = Field(
        default=0.25, gt=0, lt=1, description="A file below this share of the target size counts as small."
    )
    min_small_files: int = Field(default=20, ge=2, description="Number of small files that makes a compaction due.")
    max_manifests: int = Field(default=100, ge=2, description="More manifests than this are rewritten into fewer.")
    keep_seconds: float = Field(
        default=600.0,
        ge=0,
        description="Files and snapshots that were current this recently are kept: a running reader may use them.",
    )
    snapshot_age_seconds: float | None = Field(
        default=None, gt=0, description="Older snapshots are expired even within pipeline.snapshot_budget."
    )
    apply_retention: bool = Field(
        default=False,
        description="Whether rows older than a table's retention_years are removed automatically, once a day.",
    )
    orphan_age_seconds: float = Field(
        default=3 * 86_400.0, ge=3600, description="Only files older than this can be orphans."
    )
    orphan_interval_seconds: float = Field(
        default=86_400.0, gt=0, description="How often the files of each table are searched for orphans."
    )
