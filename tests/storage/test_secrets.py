"""The one rule of private files, and that all who read one obey it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.bus import nats_server
from frazil.cli.searching import quack
from frazil.client import locate
from frazil.embedding import ModelSettings
from frazil.embedding.model_spec import find_model_spec
from frazil.errors import Misconfigured
from frazil.pipeline import SourceSettings
from frazil.pipeline.sources.postgres.source_settings import read_dsn
from frazil.runtime.data_dir import DataDir
from frazil.settings import load
from frazil.storage import read_private
from frazil.storage.secrets import MAX_PRIVATE_BYTES

SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.touch(0o600)
    path.write_text(f"{SECRET}\n")
    return path


def _link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    path.chmod(0o600)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


def _large(path: Path) -> None:
    path.write_text("x" * (MAX_PRIVATE_BYTES + 1))


ODD: list[tuple[Callable[[Path], object], str, str]] = [
    (_link, "bad_secret_file", "it is a symbolic link"),
    (_fifo, "bad_secret_file", "not a regular file"),
    (_socket, "bad_secret_file", "cannot be read"),
    (_folder, "bad_secret_file", "not a regular file"),
    (_large, "bad_secret_file", "more than 65,536 bytes"),
    (Path.unlink, "bad_secret_file", "No such file"),
    (lambda path: path.write_bytes(b"\xff\xfe\x00"), "bad_secret_file", "not text"),
    (lambda path: path.chmod(0o640), "secret_file_mode", "mode 0640"),
    (lambda path: path.chmod(0o601), "secret_file_mode", "mode 0601"),
]


@pytest.mark.parametrize(("harm", "code", "why"), ODD, ids=lambda value: getattr(value, "__name__", None))
def test_a_file_that_is_not_private_is_refused_with_the_reason(
    private: Path, harm: Callable[[Path], object], code: str, why: str
) -> None:
    harm(private)
    with pytest.raises(Misconfigured, match=why) as refused:
        read_private(private, "the password of this test")
    assert refused.value.code == code and str(private) in refused.value.message and refused.value.hint
    assert SECRET not in str(refused.value.body())


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_that_only_its_owner_reads_is_read(private: Path, mode: int) -> None:
    private.chmod(mode)
    assert read_private(private, "the password of this test") == f"{SECRET}\n"


def test_a_file_of_somebody_else_is_refused(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(private, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(Misconfigured, match="another user"):
        read_private(private, "the password of this test")


def _of_settings(path: Path) -> object:
    return load(None, overrides={"bus.password_file": str(path)}, environment={})


def _of_a_model(path: Path) -> object:
    far = ModelSettings(provider="openai", url="http://127.0.0.1:1/v1", model="m", dims=8, key_file=path)
    return find_model_spec("far", {"far": far})


def _of_a_source(path: Path) -> object:
    return read_dsn("shop", SourceSettings(dsn_file=path), {})


def _of_the_data_directory(path: Path) -> object:
    _moved(path, "admin.token")
    return DataDir(path.parent).read_token()


def _of_the_bus(path: Path) -> object:
    _moved(path, "nats.credentials")
    return nats_server.credentials(path.parent)


def _moved(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


def _of_the_client(path: Path) -> object:
    _moved(path, "admin.token")
    return locate("http://127.0.0.1:1", data_dir=path.parent)


READERS = [_of_settings, _of_the_client, _of_a_model, _of_a_source, _of_the_data_directory, _of_the_bus, quack._token]


@pytest.mark.parametrize("harm", [_link, _fifo], ids=["link", "fifo"])
@pytest.mark.parametrize("read", READERS)
def test_every_reader_refuses_links_and_what_is_no_file(
    private: Path, read: Callable[[Path], object], harm: Callable[[Path], object]
) -> None:
    harm(private)
    if harm is _fifo:  # a reader that waits for a writer gets one, and so ends with the wrong answer
        threading.Thread(target=_write_once, args=(private,), daemon=True).start()
    with pytest.raises(Misconfigured, match=r"is a symbolic link|not a regular file"):
        read(private)


def _write_once(fifo: Path) -> None:
    with contextlib.suppress(OSError):
        fifo.write_text(SECRET)
