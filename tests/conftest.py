"""What every test may rely on: a clean environment and one Hypothesis profile. Servers live beside their tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Servers and the Spark session are started once, by the first test that asks for them.
pytest_plugins = ["tests.lake_fixtures", "tests.store_fixtures"]

# Cores are shared with real servers, so the time of one example says nothing. In CI the examples are the same in every
# run: a red build is about the commit, while the runs at home go on searching.
settings.register_profile("frazil", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("frazil")


def pytest_configure(config: pytest.Config) -> None:
    """Forget the settings of whoever runs the tests, before any module reads one at import."""
    for name in [name for name in os.environ if name.startswith("FRAZIL_")]:
        del os.environ[name]
