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
    user: str | None = Field(default=None, description="Name to enter the bus with.")
    password: SecretStr | None = Field(default=None, description="Password to enter the bus with.")
    password_file: Path | None = Field(default=None, description="File of mode 0600 whose only line is the password.")
    system_user: str | None = Field(
        default=None, description="Name in the NATS system account, with which the server's settings are checked."
    )
    system_password: SecretStr | None = Field(default=None, description="Password in the NATS system account.")
    max_stream_bytes: ByteSize = Field(
        default=ByteSize(1 << 30),
        gt=0,
        description="How much one table may have waiting on the bus before it answers 503.",
    )
    max_store_bytes: ByteSize = Field(
        default=ByteSize(1 << 40),
        gt=0,
        description="How much all tables together may have waiting on frazil's own bus.",
    )

    @field_validator("url")
    @classmethod
    def _no_options(cls, value: str | None) -> str | None:
        """Options would name files of this machine (passfile, sslkey, service) or change settings of the session."""
        if value is not None and re.search(r"\?(?!sslmode=[a-z-]+\Z)", value):
            raise ValueError("an address of a bus has no options but sslmode")
        return value

    def credentials(self) -> dict[str, str]:
        """What `open_bus` takes as `credentials`: the words that are set, and no others."""
        words = {"user": self.user, "system_user": self.system_user}
        secrets = {"password": self.password, "system_password": self.system_password}
        plain = {key: secret.get_secret_value() for key, secret in secrets.items() if secret is not None}
        return {key: word for key, word in words.items() if word is not None} | plain
