"""Tasks of a bulk job without Spark: the same work in this process, pickled on the way in and out as Spark does."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


class InProcessTasks:
    cores = 2

    @property
    def session(self) -> Any:
        raise AssertionError("this test has no Spark")

    def run(
        self,
        pieces: Sequence[_Piece],
        work: Callable[[_Piece], _Result],
        *,
        doing: str,
        tell: Callable[[int], None] | None = None,
    ) -> list[_Result]:
        found = []
        for number, piece in enumerate(pieces):
            received = pickle.loads(pickle.dumps(piece))  # noqa: S301
            found.append(pickle.loads(pickle.dumps(work(received))))  # noqa: S301
            if tell is not None:
                tell(number + 1)
        return found

    def give_up(self) -> None:
        return
