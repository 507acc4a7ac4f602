"""What the documentation says, done: the commands of each page in their order, and the demo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.servers import free_port, running_postgres
from tests.flow.product import PATIENCE_SECONDS, ROOT, Product, running
from tests.quick_jvm import QUICK_JVM

pytestmark = [pytest.mark.slow, pytest.mark.spark]
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SETTINGS = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    ("tutorial.md", 9),
    ("sql.md", 12),
    ("entities.md", 5),
    ("vault.md", 4),
    ("csv.md", 11),
    ("embedding.md", 2),
    ("artifacts.md", 3),
    ("search.md", 3),
    ("searching.md", 4),
    ("trials.md", 6),
]


def run(language: str, text: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.parametrize(("page", "least_blocks"), PAGES)
def test_every_command_of_the_page_works(page: str, least_blocks: int, tmp_path: Path) -> None:
    follow(page, least_blocks, tmp_path, {})


def test_every_command_of_the_page_on_postgres_works(tmp_path: Path) -> None:
    with running_postgres(options={"fsync": "off"}) as server:
        user, password = server.credentials["user"], server.credentials["password"]
        dsn = f"postgresql://{user}:{password}@127.0.0.1:{server.port}/postgres"
        follow("postgres.md", 9, tmp_path, {"SHOP_DSN": dsn})


def follow(page: str, least_blocks: int, folder: Path, variables: dict[str, str]) -> None:
    """Do what the page says, on a frazil that was started with the settings it shows first."""
    content = (ROOT / "docs" / page).read_text()
    blocks = _BLOCK.findall(content)
    assert len(blocks) >= least_blocks
    if shown := _SETTINGS.search(content):
        (folder / "frazil.toml").write_text(shown[1])
    with running(Product(folder / "frazil-data", environment=variables)) as product:
        product.up()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ours = {"PATH": path, "PYTHONPATH": str(ROOT), "FRAZIL_SERVER__PORT": str(product.port)}
        for language, text in blocks:
            here = text.replace("127.0.0.1:7373", f"127.0.0.1:{product.port}")
            done = run(language, here, folder, {**os.environ, **ours, **variables})
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
