from __future__ import annotations

import os
import socket
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from frazil.errors import Conflict, Misconfigured, Unavailable
from frazil.runtime.data_dir import DataDir, check_catalog, check_disk, read_json, write_json
from frazil.runtime.machine_checks import check_java, check_port, free_port


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    directory = DataDir(tmp_path / "data")
    directory.prepare()
    return directory


def test_it_is_its_owners_alone(data: DataDir) -> None:
    assert stat.S_IMODE(data.root.stat().st_mode) == 0o700


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured) as caught:
        DataDir(tmp_path / "file" / "data").prepare()
    assert caught.value.code == "data_dir_not_writable"
    assert "--data" in caught.value.hint


def test_only_one_may_hold_the_lock_and_the_other_is_named(data: DataDir) -> None:
    lock = data.lock()
    write_json(data.supervisor_file, {"pid": 4711, "url": "http://127.0.0.1:7373"})
    assert data.is_locked()
    with pytest.raises(Conflict) as caught:
        data.lock()
    assert caught.value.code == "already_running"
    assert "4711" in caught.value.message
    assert "http://127.0.0.1:7373" in caught.value.message
    lock.release()
    assert not data.is_locked()
    data.lock().release()


def test_a_directory_that_is_not_there_is_not_locked(tmp_path: Path) -> None:
    assert not DataDir(tmp_path / "nowhere").is_locked()
    assert not (tmp_path / "nowhere").exists()


def test_the_token_is_made_once_and_private(data: DataDir) -> None:
    token = data.admin_token()
    assert token.startswith("frz_")
    assert len(token) >= 4 + 43
    assert data.token_file.read_text() == f"{token}\n"
    assert stat.S_IMODE(data.token_file.stat().st_mode) == 0o600
    assert data.admin_token() == token
    assert DataDir(data.root).read_token() == token


@pytest.mark.parametrize("content", [b"", b"frz_short\n", b"something else entirely\n", b"frz_\xff\xfe", b"a\nb\n"])
def test_a_damaged_token_is_not_replaced_silently(data: DataDir, content: bytes) -> None:
    data.token_file.write_bytes(content)
    data.token_file.chmod(0o600)
    with pytest.raises(Misconfigured) as caught:
        data.admin_token()
    assert caught.value.code in ("token_damaged", "token_unreadable")
    assert str(data.token_file) in caught.value.message
    assert data.token_file.read_bytes() == content


def test_a_token_that_others_read_is_refused(data: DataDir) -> None:
    data.admin_token()
    data.token_file.chmod(0o644)
    with pytest.raises(Misconfigured) as caught:
        data.admin_token()
    assert caught.value.hint == f"chmod 600 {data.token_file}"


def test_a_token_file_that_cannot_be_read(data: DataDir) -> None:
    data.token_file.mkdir()
    with pytest.raises(Misconfigured) as caught:
        data.admin_token()
    assert caught.value.code == "token_unreadable"


def test_a_nearly_full_disk(data: DataDir) -> None:
    assert check_disk(data.root, 0) > 0
    with pytest.raises(Misconfigured) as caught:
        check_disk(data.root, 1 << 62)
    assert caught.value.code == "disk_full"
    assert "min_free_bytes" in caught.value.hint


def made_catalog(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE iceberg_tables (name TEXT, location TEXT)")
        connection.executemany("INSERT INTO iceberg_tables VALUES (?, ?)", [(f"t{i}", "x" * 500) for i in range(200)])
        connection.execute("CREATE INDEX by_name ON iceberg_tables (name)")


def test_a_whole_catalog_and_none_at_all_are_fine(tmp_path: Path) -> None:
    check_catalog(tmp_path / "catalog.db")
    assert not (tmp_path / "catalog.db").exists()
    made_catalog(tmp_path / "catalog.db")
    check_catalog(tmp_path / "catalog.db")


@pytest.mark.parametrize("harm", ["not a database", "torn page", "cut off", "emptied"])
def test_a_damaged_catalog_is_named_and_left_as_it_is(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "catalog.db"
    made_catalog(path)
    whole = path.read_bytes()
    (tmp_path / "warehouse" / "main" / "t").mkdir(parents=True)
    harmed = {
        "not a database": b"hello " * 1000,
        "torn page": whole[:8192] + b"\xa5" * 4096 + whole[12288:],
        "cut off": whole[: len(whole) // 2],
        "emptied": b"",
    }[harm]
    path.write_bytes(harmed)
    with pytest.raises(Misconfigured) as caught:
        check_catalog(path)
    assert caught.value.code == "catalog_damaged"
    assert str(path) in caught.value.message
    assert "backup" in caught.value.hint
    assert path.read_bytes() == harmed


def test_a_locked_catalog_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    made_catalog(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable) as caught:
            check_catalog(path)
    assert caught.value.code == "catalog_locked"


def test_json_that_is_not_there_or_not_json_is_empty(tmp_path: Path) -> None:
    assert read_json(tmp_path / "x.json") == {}
    (tmp_path / "x.json").write_text("[1")
    assert read_json(tmp_path / "x.json") == {}
    write_json(tmp_path / "x.json", {"a": 1})
    assert read_json(tmp_path / "x.json") == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def fake_java(home: Path, *, release: str | None, says: str = "") -> dict[str, str]:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return {"JAVA_HOME": str(home)}


def test_java_is_known_by_its_release_file_or_by_asking(tmp_path: Path) -> None:
    assert check_java(fake_java(tmp_path / "a", release="21.0.1")) == "21.0.1"
    assert check_java(fake_java(tmp_path / "b", release=None, says='openjdk version "17.0.15" 2025')) == "17.0.15"


@pytest.mark.parametrize(("version", "code"), [("1.8.0_392", "java_too_old"), ("11.0.2", "java_too_old")])
def test_java_too_old(tmp_path: Path, version: str, code: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        check_java(fake_java(tmp_path, release=version))
    assert caught.value.code == code
    assert "openjdk-17" in caught.value.hint


def test_no_java(tmp_path: Path) -> None:
    for environment in ({"JAVA_HOME": str(tmp_path)}, {"PATH": str(tmp_path)}):
        with pytest.raises(Misconfigured) as caught:
            check_java(environment)
        assert caught.value.code == "java_missing"
    with pytest.raises(Misconfigured) as caught:
        check_java(fake_java(tmp_path / "c", release=None, says="nothing useful"))
    assert caught.value.code == "java_broken"


def test_a_taken_port_and_a_foreign_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Conflict) as caught:
            check_port("127.0.0.1", port)
        assert caught.value.code == "port_taken"
        assert "--port" in caught.value.hint
        assert free_port(port) != port
    with pytest.raises(Misconfigured) as wrong:
        check_port("192.0.2.1", 7373)
    assert wrong.value.code == "bad_host"
    check_port("127.0.0.1", free_port())
