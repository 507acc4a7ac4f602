from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from frazil.runtime.temp_folder import own_scratch_folder


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    for name in ("SPARK_LOCAL_DIRS", "JDK_JAVA_OPTIONS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def test_what_a_killed_process_left_is_removed_and_a_living_one_keeps_its_own(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid in (ended.pid, os.getppid()):
        (tmp_path / str(pid) / "blockmgr").mkdir(parents=True)
    own = own_scratch_folder(tmp_path)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == sorted((os.getppid(), os.getpid()))
    assert Path(tempfile.mkdtemp()).parent == own
    assert f"-Djava.io.tmpdir={own}" in os.environ["JDK_JAVA_OPTIONS"]
