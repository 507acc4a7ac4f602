"""Settings of the bus."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, field_validator


class BusSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=None,
        pattern=r"^(nats|postgres|postgresql)://.+|^memory:",
        description="nats://host:port or postgresql://host/database; without it frazil starts its own.",
    )
    port: int = Field(default=0, ge=0, le=65535, description="Port of frazil's own NATS server; 0 picks a free one.")
    user: str | None = Field(default=None, description="User name for the bus.")
    password: SecretStr | None = Field(default=None, description="Password for the bus.")
    password_file: Path | None = Field(default=None, description="File of mode 0600 whose only line is the password.")
    system_user: str | None = Field(
        default=None, description="User of the NATS system account, to check the server's settings."
    )
    system_password: SecretStr | None = Field(default=None, description="Password in the NATS system account.")
    max_stream_bytes: ByteSize = Field(
        default=ByteSize(1 << 30),
        gt=0,
        description="Bytes of one table that may wait on the bus; beyond them the gateway answers 503.",
    )
    max_store_bytes: ByteSize = Field(
        default=ByteSize(1 << 40),
        gt=0,
        description="Bytes of all tables together that may wait on frazil's own bus.",
    )

    @field_validator("url")
    @classmethod
    def _no_options(cls, value: str | None) -> str | None:
        """Options would name files of this machine (passfile, sslkey, service) or change settings of the session."""
        if value is not None and re.search(r"\?(?!sslmode=[a-z-]+\Z)", value):
            raise ValueError("the address of a bus has no options except sslmode")
        return value

    def credentials(self) -> dict[str, str]:
        """The settings that are set, as `open_bus` takes them."""
        names = {"user": self.user, "system_user": self.system_user}
        secrets = {"password": self.password, "system_password": self.system_password}
        plain = {key: secret.get_secret_value() for key, secret in secrets.items() if secret is not None}
        return {key: name for key, name in names.items() if name is not None} | plain
