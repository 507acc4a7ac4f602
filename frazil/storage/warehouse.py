"""Warehouse: the local folder or S3-compatible bucket of the table files, by one URL.

It also has the properties with which each engine opens these files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

from frazil.errors import Misconfigured

# A store that is silent must not hold up a commit for long: the cycle fails, is reported, and is retried as a whole.
# The engines' own tries only bridge what passes within seconds (left alone, S3FileIO waits up to 20 s between two).
_CONNECT_SECONDS = 5
_SILENT_SECONDS = 20
_RETRIES = 4


@dataclass(frozen=True)
class Warehouse:
    url: str
    endpoint: str | None = None
    region: str = "us-east-1"
    path_style: bool = True
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        scheme = urlparse(self.url).scheme
        if scheme not in ("file", "s3"):
            raise Misconfigured(
                f"warehouse.url has the unsupported scheme {scheme!r}",
                hint="use file:///a/folder or s3://bucket/prefix",
            )
        if odd := [character for character in "#?" if character in self.url]:
            raise Misconfigured(
                f"warehouse.url contains {odd[0]!r}, which some engines do not read as part of a path",
                hint="choose a folder or prefix without # and ?",
            )
        if scheme == "s3" and not (self.access_key_id and self.secret_access_key):
            raise Misconfigured(
                "the warehouse is on S3 and has no credentials",
                hint=(
                    "set FRAZIL_WAREHOUSE__ACCESS_KEY_ID and FRAZIL_WAREHOUSE__SECRET_ACCESS_KEY, "
                    "or warehouse.credentials_file (mode 0600)"
                ),
            )

    @property
    def is_s3(self) -> bool:
        return self.url.startswith("s3:")

    def folder(self) -> Path:
        """The local folder of a `file:` warehouse."""
        return local_path(self.url)

    def for_pyiceberg(self) -> dict[str, str]:
        properties = {"warehouse": self.url}
        if self.is_s3:
            properties |= {
                "s3.region": self.region,
                "s3.access-key-id": self.access_key_id,
                "s3.secret-access-key": self.secret_access_key,
                "s3.force-virtual-addressing": str(not self.path_style).lower(),
                "s3.connect-timeout": str(_CONNECT_SECONDS),
                "s3.request-timeout": str(_SILENT_SECONDS),
            }
            if self.endpoint:
                properties["s3.endpoint"] = self.endpoint
        return properties

    def for_spark(self) -> dict[str, str]:
        properties = {"warehouse": self.url}
        if self.is_s3:
            properties |= {
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.path-style-access": str(self.path_style).lower(),
                "s3.access-key-id": self.access_key_id,
                "s3.secret-access-key": self.secret_access_key,
                "client.region": self.region,
                "http-client.apache.connection-timeout-ms": str(_CONNECT_SECONDS * 1000),
                "http-client.apache.socket-timeout-ms": str(_SILENT_SECONDS * 1000),
                "http-client.apache.connection-acquisition-timeout-ms": str(_SILENT_SECONDS * 1000),
                "s3.retry.num-retries": str(_RETRIES),
                "s3.retry.min-wait-ms": "100",
                "s3.retry.max-wait-ms": "2000",
            }
            if self.endpoint:
                properties["s3.endpoint"] = self.endpoint
        return properties


def local_path(url: str) -> Path:
    """The path of a `file:` address, in any of its spellings.

    Nothing is decoded, because the engines decode nothing either: `%2F` in the folder of a partition is just that.
    """
    if not url.startswith("file:"):
        return Path(url)
    path = url.removeprefix("file:")
    return Path("/" + path.removeprefix("//").partition("/")[2] if path.startswith("//") else path)
