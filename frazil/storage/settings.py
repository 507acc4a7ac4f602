"""Settings of the warehouse: where table files live."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class WarehouseSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=None,
        pattern=r"^(file:/|s3://[^/]+).*",
        description="file:///a/folder or s3://bucket/prefix; left out, `warehouse` in the data directory.",
    )
    endpoint: str | None = Field(
        default=None, pattern=r"^https?://.+", description="Address of an S3-compatible store, http(s)://host:port."
    )
    region: str = Field(default="us-east-1", description="Region that S3 requests are signed for.")
    path_style: bool = Field(default=True, description="Put the bucket in the path of a request, not in its host name.")
    access_key_id: str | None = Field(default=None, description="Name of the S3 key.")
    secret_access_key: SecretStr | None = Field(default=None, description="Secret of the S3 key.")
    credentials_file: Path | None = Field(
        default=None, description="File of mode 0600 with the lines access_key_id = … and secret_access_key = …"
    )
