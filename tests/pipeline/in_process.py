"""Bulk jobs without Spark and bus: the same work in this process, pickled on the way in and out as Spark does."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.events import Token
from frazil.lake.catalog import LakeTable

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
        report_done: Callable[[int], None] | None = None,
    ) -> list[_Result]:
        found = []
        for number, piece in enumerate(pieces):
            received = pickle.loads(pickle.dumps(piece))  # noqa: S301
            found.append(pickle.loads(pickle.dumps(work(received))))  # noqa: S301
            if report_done is not None:
                report_done(number + 1)
        return found

    def cancel(self) -> None:
        return


class KeptSender:
    """Takes what would go onto a stream."""

    def __init__(self) -> None:
        self.sent: list[pa.Table] = []

    def send(self, table: LakeTable, rows: pa.Table) -> Token:
        self.sent.append(rows)
        return Token.of(table.token_name, table.stream_identity, len(self.sent))

    def wait_committed(self, table: LakeTable, *, timeout_seconds: float) -> LakeTable:
        return table

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All events, those of an id that was there before left out, as the pipeline does."""
        found: dict[str, dict[str, Any]] = {}
        for table in self.sent:
            for row in table.to_pylist():
                found.setdefault(row["_id"], row)
        return list(found.values())


class FolderSender(KeptSender):
    """The same, kept in a folder: what was sent before a kill stays sent."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self.sent = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]

    def send(self, table: LakeTable, rows: pa.Table) -> Token:
        pq.write_table(rows, self._folder / f"{len(self.sent):06d}.parquet")
        return super().send(table, rows)
