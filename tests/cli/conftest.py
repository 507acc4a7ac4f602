from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.cli import main
from frazil.runtime.data_dir import DataDir, write_json, write_private
from tests.cli.contract_server import TOKEN, ContractServer, serving


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("FRAZIL_URL", "FRAZIL_TOKEN", "FRAZIL_CONFIG", "FRAZIL_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line as the terminal does."""

    def called(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["frazil", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        told = capsys.readouterr()
        return Ran(code if isinstance(code, int) else 0 if code is None else 1, told.out, told.err)

    return called


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ContractServer]:
    """A server that the command line finds by itself, as it finds a frazil on the same machine."""
    with serving() as state:
        data = DataDir(tmp_path / "frazil-data")
        data.prepare()
        write_private(data.token_file, f"{TOKEN}\n")
        write_json(data.supervisor_file, {"url": state.url})
        state.tables["t"] = {"name": "t", "kind": "log", "columns": {"a": "long"}}
        yield state
