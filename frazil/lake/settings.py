"""Settings of the catalog: which tables there are and where each one stands."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr


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
    user: str | None = Field(default=None, description="Name to enter the catalog database with.")
    password: SecretStr | None = Field(default=None, description="Password to enter the catalog database with.")
    password_file: Path | None = Field(default=None, description="File of mode 0600 whose only line is the password.")
