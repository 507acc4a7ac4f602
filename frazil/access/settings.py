"""Settings of tokens, rate limits and the audit log."""

from __future__ import annotations

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class AccessSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_seconds: float = Field(
        default=1.0,
        gt=0,
        le=4,
        description="How often each gateway looks for new and revoked tokens; a revocation is effective within 5 s.",
    )
    stale_seconds: float = Field(
        default=60.0,
        ge=5,
        le=86_400,
        description="How long known tokens stay valid while the catalog's database cannot be reached.",
    )
    rate_per_second: float = Field(
        default=200.0, gt=0, description="Requests per second of one token that has no rate of its own."
    )
    burst: int = Field(default=400, ge=1, description="Requests that such a token may send at once.")
    token_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="The share of ingest.max_concurrent_requests, and of waiting requests, that one token may use.",
    )
    token_memory: ByteSize = Field(
        default=ByteSize(768 << 20),
        ge=1 << 20,
        description="Memory that the bodies of one token may take at once, unpacked and decoded.",
    )
    admin_reserve: int = Field(
        default=16,
        ge=1,
        description="Requests of admins that are served in addition to ingest.max_concurrent_requests.",
    )
    audit_file_bytes: ByteSize = Field(
        default=ByteSize(64 << 20), ge=4096, description="The audit log begins another file at this size, and each day."
    )
    denied_per_second: int = Field(
        default=10, ge=1, description="Refused requests of one address that are logged one by one in a second."
    )
