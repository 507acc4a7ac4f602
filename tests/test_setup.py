"""The set-up of a fresh machine: what a network that stumbles breaks is tried again."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parent.parent / "scripts" / "setup.sh").read_text()


@pytest.mark.parametrize(("fails", "code"), [(0, 0), (1, 0), (2, 0), (3, 1)])
def test_three_times_in_all(tmp_path: Path, fails: int, code: int) -> None:
    function = re.search(r"^retried\(\) \{.*?^\}", SCRIPT, re.MULTILINE | re.DOTALL)
    assert function is not None
    stumbling = f'stumbles() {{ echo x >>tried; (($(wc -l <tried) > {fails})); }}; sleep() {{ echo "$1" >>slept; }}'
    ran = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {function[0]}\n{stumbling}\nretried stumbles || exit 1"],
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == code
    assert len((tmp_path / "tried").read_text().splitlines()) == min(fails + 1, 3)
    slept = (tmp_path / "slept").read_text().split() if fails else []
    assert slept == ["5", "30"][:fails]


def test_whatever_takes_the_network_is_tried_again() -> None:
    for command in ("system_install", "install_packages", '"$venv/bin/python" scripts/fetch_jars.py'):
        uses = [line for line in SCRIPT.splitlines() if command in line and f"{command}()" not in line]
        assert uses and all(f"retried {command}" in line for line in uses), uses
