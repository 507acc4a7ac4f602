"""Settings of search: when artifacts are built, how long they stay, how much is searched beside them."""

from __future__ import annotations

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class SearchSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    build_seconds: float = Field(
        default=900,
        ge=0,
        description="Build a searched table again this long after its last build; 0: never by itself.",
    )
    build_after_commits: int = Field(
        default=0, ge=0, description="Build sooner, after so many commits to the table; 0: not because of commits."
    )
    build_after_rows: int = Field(
        default=10_000, ge=0, description="Build sooner, once so many rows are newer than the artifact; 0: never."
    )
    keep_artifacts: int = Field(default=24, ge=2, description="The newest this many artifacts of a table stay.")
    grace_seconds: float = Field(
        default=86_400, ge=0, description="How long an artifact stays after another took its place."
    )
    duckdb_vss: bool = Field(
        default=False, description="Put an HNSW index of DuckDB's own into the artifact's database file."
    )
    fresh_documents: int = Field(
        default=50_000, ge=1, description="How many documents newer than its artifact one table may have in memory."
    )
    fresh_memory: ByteSize = Field(
        default=ByteSize(256 << 20), ge=1 << 20, description="How much memory they may take."
    )
