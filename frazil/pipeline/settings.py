"""Settings of the Spark pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ByteSize, ConfigDict, Field, field_validator


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
    spark_conf: dict[str, str] = Field(
        default_factory=dict, description="Further Spark settings, as in [pipeline.spark_conf]."
    )

    @field_validator("spark_conf", mode="before")
    @classmethod
    def _as_spark_writes_them(cls, value: Any) -> Any:
        """Spark's keys have dots, which TOML reads as tables inside tables; and its values are all text."""
        return dict(_flat(value, "")) if isinstance(value, Mapping) else value


def _flat(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found += _flat(inner, f"{prefix}{key}.")
        else:
            found.append((prefix + key, str(inner).lower() if isinstance(inner, bool) else str(inner)))
    return found
