"""Settings of the gateway: its HTTP server, and the limits of what producers may send."""

from __future__ import annotations

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class ServerSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", min_length=1, description="Address that HTTP listens on.")
    port: int = Field(default=7373, ge=1, le=65535, description="Port that HTTP listens on.")
    allow_remote: bool = Field(
        default=False,
        description="Listen on an address that other machines reach; nothing is encrypted.",
    )
    max_connections: int = Field(
        default=2000, ge=5, description="Most connections at once; fewer where the limit on open files is low."
    )
    max_connections_per_address: int = Field(
        default=1600, gt=0, description="Most connections of one address, never more than four fifths of all."
    )
    max_header_bytes: ByteSize = Field(
        default=ByteSize(32 << 10), ge=1024, description="Largest headers of a request, all together."
    )
    max_headers: int = Field(default=100, ge=10, description="Most headers of a request.")
    max_url_bytes: ByteSize = Field(
        default=ByteSize(8 << 10), ge=256, description="Longest path and query of a request, together."
    )
    header_seconds: float = Field(default=15.0, gt=0, description="Time for the headers of a request to arrive.")
    body_seconds: float = Field(
        default=10.0, gt=0, description="A body that was slower than min_bytes_per_second for this long is refused."
    )
    answer_seconds: float = Field(
        default=60.0, gt=0, description="A client that reads its answer so slowly for this long is cut off."
    )
    min_bytes_per_second: ByteSize = Field(
        default=ByteSize(1024), ge=1, description="Least rate of a body and of a client that reads an answer."
    )
    keep_alive_seconds: float = Field(
        default=75.0, gt=0, description="How long a connection stays open without a request."
    )


class IngestSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    dedupe_window_hours: float = Field(default=24, gt=0, description="How long an event id is remembered.")
    max_body_bytes: ByteSize = Field(default=ByteSize(64 << 20), gt=0, description="Largest body of a request.")
    max_upload_bytes: ByteSize = Field(
        default=ByteSize(20 << 30), gt=0, description="Largest file that may be uploaded for a load."
    )
    max_waiting_upload_bytes: ByteSize = Field(
        default=ByteSize(50 << 30),
        gt=0,
        description="Most bytes of uploads of one token that wait for their loads; admins have no such limit.",
    )
    max_open_jobs: int = Field(default=32, ge=1, description="Most open jobs of one token; admins have no such limit.")
    max_unpacked_bytes: ByteSize = Field(
        default=ByteSize(100 << 30), gt=0, description="Most bytes that the packed files of one load may unpack to."
    )
    max_unpack_ratio: int = Field(
        default=250, ge=10, description="How many times its size a packed file above 64 MB may unpack to."
    )
    max_event_bytes: ByteSize = Field(default=ByteSize(1 << 20), gt=0, description="Largest single event.")
    max_events: int = Field(default=200_000, gt=0, description="Most events in one request.")
    max_depth: int = Field(default=32, gt=0, le=256, description="Deepest nesting of an event.")
    max_fields: int = Field(default=1000, gt=0, description="Most fields in one event, nested ones counted.")
    max_partitions_per_request: int = Field(
        default=5000, gt=0, description="Most partitions that the events of one request may fall into."
    )
    max_partitions_per_day: int = Field(
        default=10_000, gt=0, description="Most partitions of one table that a gateway takes events for in a day (UTC)."
    )
    max_concurrent_requests: int = Field(
        default=256, gt=0, description="Requests served at once before the answer is 503."
    )
    max_memory_bytes: ByteSize = Field(
        default=ByteSize(1536 << 20),
        ge=1 << 20,
        description="Memory that the bodies of all requests may take at once, unpacked and decoded.",
    )
