"""What happens between the writing of a metadata file and the swap in the catalog: a death, or another's commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog

_WRITE = MetastoreCatalog._write_metadata


class Died(Exception):
    pass


@contextmanager
def between_write_and_swap(act: Callable[[], object]) -> Iterator[None]:
    """Do this once, after the next metadata file is written and before the catalog names it."""
    waiting: list[Callable[[], object]] = [act]

    def write(*arguments: Any, **named: Any) -> None:
        _WRITE(*arguments, **named)
        if waiting:
            waiting.pop()()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SqlCatalog, "_write_metadata", staticmethod(write))
        yield


@contextmanager
def dying_before_the_swap() -> Iterator[None]:
    def die() -> None:
        raise Died

    with pytest.raises(Died), between_write_and_swap(die):
        yield
