"""What the documentation says, done: the commands of each page in their order, and the demo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.servers import running_postgres
from tests.flow.product import PATIENCE_SECONDS, ROOT, Product, running
from tests.ports import free_port
from tests.quick_jvm import QUICK_JVM

pytestmark = [pytest.mark.slow, pytest.mark.spark]
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SETTINGS = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Followed on one frazil each, with the settings that its pages show: no two pages of a house name the same table.
HOUSES = {
    "files": {"sql.md": 12, "entities.md": 5, "vault.md": 4, "csv.md": 11},
    "servers": {"tutorial.md": 9, "embedding.md": 2, "postgres.md": 9},
    "searched": {"search.md": 4, "artifacts.md": 5, "trials.md": 6},
}
PAGES = [(house, page, least) for house, pages in HOUSES.items() for page, least in pages.items()]


@dataclass(frozen=True)
class House:
    product: Product
    variables: dict[str, str]

    @property
    def folder(self) -> Path:
        return self.product.data.parent


class Houses:
    """One at a time: the next one is started when a page asks for it, and the one before is ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._last: tuple[str, House] | None = None

    def of(self, name: str) -> House:
        if self._last is None or self._last[0] != name:
            self.close()
            self._last = name, self._running.enter_context(self._started(self._folder / name))
        return self._last[1]

    def close(self) -> None:
        self._running.close()

    @contextmanager
    def _started(self, folder: Path) -> Iterator[House]:
        folder.mkdir()
        shown = [_SETTINGS.search((ROOT / "docs" / page).read_text()) for page in HOUSES[folder.name]]
        (folder / "frazil.toml").write_text("\n".join(found[1] for found in shown if found))
        with running_postgres(options={"fsync": "off"}) as server:
            user, password = server.credentials["user"], server.credentials["password"]
            variables = {"SHOP_DSN": f"postgresql://{user}:{password}@127.0.0.1:{server.port}/postgres"}
            with running(Product(folder / "frazil-data", environment=variables)) as product:
                product.up()
                yield House(product, variables)


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    found = Houses(tmp_path_factory.mktemp("houses"))
    yield found
    found.close()


def run(language: str, text: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.parametrize(("name", "page", "least_blocks"), PAGES)
def test_every_command_of_the_page_works(houses: Houses, name: str, page: str, least_blocks: int) -> None:
    house = houses.of(name)
    blocks = _BLOCK.findall((ROOT / "docs" / page).read_text())
    assert len(blocks) >= least_blocks
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ours = {"PATH": path, "PYTHONPATH": str(ROOT), "FRAZIL_SERVER__PORT": str(house.product.port)}
    for language, text in blocks:
        here = text.replace("127.0.0.1:7373", f"127.0.0.1:{house.product.port}")
        done = run(language, here, house.folder, {**os.environ, **ours, **house.variables})
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_demo_adds_up(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "frazil", "demo", "--once", "--json", "--producers", "3", "--batches", "2"]
    done = subprocess.run(
        [*command, "--data", str(tmp_path / "data"), "--port", str(free_port())],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FRAZIL_PIPELINE__SPARK_CONF": json.dumps(QUICK_JVM)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["adds_up"] and report["rows"] == report["events"] == 3 * 2 * 500
    assert report["commits"] >= 1 and report["snapshots"] >= 1 and report["files"] >= 1
    for stage in ("start", "declare", "publish", "again", "sql", "commit", "query", "check", "stop"):
        assert re.search(rf"s  {stage} ", done.stderr), f"the stage {stage} was not shown"
