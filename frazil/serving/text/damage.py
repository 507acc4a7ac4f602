"""Damage of index files, as an error that names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frazil.errors import DataLoss, FrazilError


def damaged(path: Path, why: str) -> DataLoss:
    return DataLoss(
        f"the text index file {path.name} is damaged: {why}",
        code="text_damaged",
        hint="build the artifact again; an older generation can go on serving meanwhile",
        details={"file": str(path)},
    )


@contextmanager
def engine_trouble(folder: Path) -> Iterator[None]:
    """Whatever the engine fails with is damage: queries are made so that it has nothing else to object to.

    It panics on some damage, which arrives beside `Exception`.
    """
    try:
        yield
    except FrazilError:
        raise
    except BaseException as wrong:
        if isinstance(wrong, Exception) or type(wrong).__name__ == "PanicException":
            raise damaged(folder, str(wrong)) from wrong
        raise
