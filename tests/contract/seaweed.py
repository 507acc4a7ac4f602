"""A real S3 server for tests: SeaweedFS on loopback, every port pinned to a free one, telemetry off, ended by pid.

Its filer, volume and admin ports ask for no key, so it is never more than a loopback server.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import FileType, S3FileSystem

from frazil.storage import Warehouse
from tests.contract.servers import Server, scratch_directory
from tests.ports import free_port

BUCKET = "lake"
_PORTS = [f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3", "admin") for kind in ("", ".grpc")]


class SeaweedServer(Server):
    """One bucket named `lake`, one random key that may do everything in it."""

    def __init__(self, directory: Path) -> None:
        self.ports = {name: free_port() for name in _PORTS}
        super().__init__(directory, self.ports["s3.port"])
        self.url = f"http://127.0.0.1:{self.port}"
        self.credentials = {"access_key_id": secrets.token_hex(10), "secret_access_key": secrets.token_urlsafe(30)}
        self._keys = directory / "s3.json"
        key = {"accessKey": self.credentials["access_key_id"], "secretKey": self.credentials["secret_access_key"]}
        identity = {"name": "test", "credentials": [key], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        self._keys.touch(0o600)
        self._keys.write_text(json.dumps({"identities": [identity]}))
        for folder in ("data", "logs"):
            (directory / folder).mkdir()

    def command(self) -> list[str]:
        options = {
            "dir": self.directory / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "bucket": BUCKET,
            "s3.config": self._keys,
            "s3.localSocket": self.directory / "s3.sock",
            "filer.localSocket": self.directory / "filer.sock",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "webdav": "false",
            "admin.ui": "false",
            "master.telemetry": "false",
            **self.ports,
        }
        weed = Path(sys.executable).parent / "weed"
        words = [f"-{name}={value}" for name, value in options.items()]
        return [str(weed), f"-logdir={self.directory / 'logs'}", "mini", *words]

    def kill(self) -> None:
        super().kill()
        # Each part also has a socket file that it puts there whatever it is told, and a kill leaves behind.
        for name, port in self.ports.items():
            Path(f"/tmp/seaweedfs-{name.partition('.')[0]}-grpc-{port}.sock").unlink(missing_ok=True)

    def ready(self) -> bool:
        if not super().ready():
            return False
        try:
            return bool(self.files().get_file_info(BUCKET).type == FileType.Directory)
        except OSError:
            return False

    def files(self) -> S3FileSystem:
        """The store as it is, past every fault in front of it."""
        return S3FileSystem(
            access_key=self.credentials["access_key_id"],
            secret_key=self.credentials["secret_access_key"],
            region="us-east-1",
            endpoint_override=self.url,
            connect_timeout=2,
            request_timeout=10,
        )

    def warehouse(self, prefix: str, *, endpoint: str | None = None) -> Warehouse:
        return Warehouse(
            f"s3://{BUCKET}/{prefix}",
            endpoint=endpoint or self.url,
            access_key_id=self.credentials["access_key_id"],
            secret_access_key=self.credentials["secret_access_key"],
        )


@contextmanager
def running_seaweed() -> Iterator[SeaweedServer]:
    with scratch_directory("seaweed") as directory:
        server = SeaweedServer(directory)
        server.start()
        try:
            yield server
        finally:
            server.kill()
