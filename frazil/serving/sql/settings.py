"""Settings of the query workers."""

from __future__ import annotations

import os

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class QuerySettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: int = Field(
        default_factory=lambda: max(2, os.cpu_count() or 2),
        ge=1,
        le=256,
        description="How many quick queries run side by side.",
    )
    threads: int = Field(default=2, ge=1, le=64, description="Threads of one query.")
    worker_memory: ByteSize = Field(
        default=ByteSize(512 << 20), ge=128 << 20, description="Memory that one query may use; the system enforces it."
    )
    slow_after_seconds: float = Field(
        default=0.5, gt=0, le=60, description="A query that runs longer than this makes room in the fast lane."
    )
    slow_workers: int = Field(default=4, ge=0, le=256, description="How many slow queries run beside the quick ones.")
    slow_per_owner: int = Field(default=2, ge=1, description="How many slow queries one token may have running.")
    max_queued: int = Field(default=1000, ge=1, description="How many queries may wait altogether.")
    max_queued_per_owner: int = Field(default=200, ge=1, description="How many queries of one token may wait.")
    tail_memory: ByteSize = Field(
        default=ByteSize(64 << 20), ge=1 << 20, description="How much of the uncommitted events one worker keeps."
    )
    require_walls: bool = Field(
        default=False, description="Refuse to start when the kernel lacks one of the walls around a worker."
    )
