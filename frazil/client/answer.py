"""Answer of a query: typed rows, and the cut of each table that they were read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil.errors import InvalidInput, Misconfigured

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class Cut:
    """The state of one table that was read: its snapshot, and the live rows on top of it."""

    snapshot_id: int | None
    committed_at: datetime | None
    watermark: str
    """The token of the snapshot."""
    token: str
    """The token of the answer: with it as `min_token`, another answer is not older than this one."""
    age_seconds: float
    live_rows: int

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Cut:
        at = body.get("committed_at")
        return cls(
            snapshot_id=body.get("snapshot_id"),
            committed_at=datetime.fromisoformat(at) if at else None,
            watermark=str(body.get("watermark") or ""),
            token=str(body.get("token") or ""),
            age_seconds=float(body.get("age_seconds") or 0.0),
            live_rows=int(body.get("live_rows") or 0),
        )


@dataclass(frozen=True)
class Answer:
    """The answer to one query. Iterating over it gives the rows as `rows()` does."""

    _stream: bytes = field(repr=False)
    token: str
    """The freshness token of the whole answer, all tables together."""
    freshness: str
    snapshots: Mapping[str, Cut]
    truncated: bool
    """Whether there were more rows than `max_rows`."""
    row_count: int
    elapsed_ms: float
    queued_ms: float

    @classmethod
    def of(cls, facts: Mapping[str, Any], stream: bytes) -> Answer:
        """The answer with this header and this Arrow stream."""
        return cls(
            _stream=stream,
            token=str(facts.get("token") or ""),
            freshness=str(facts.get("freshness") or ""),
            snapshots={table: Cut.of(cut) for table, cut in (facts.get("snapshots") or {}).items()},
            truncated=bool(facts.get("truncated")),
            row_count=int(facts.get("row_count") or 0),
            elapsed_ms=float(facts.get("elapsed_ms") or 0.0),
            queued_ms=float(facts.get("queued_ms") or 0.0),
        )

    @cached_property
    def _table(self) -> Any:
        try:
            import pyarrow as pa
        except ImportError as error:
            raise Misconfigured(
                "pyarrow is not installed; answers are sent as Arrow", code="no_pyarrow", hint="pip install pyarrow"
            ) from error
        with pa.ipc.open_stream(pa.py_buffer(self._stream)) as reader:
            return reader.read_all()

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table, with the types of the engine."""
        return self._table

    def df(self) -> pd.DataFrame:
        """The rows as a pandas frame.

        Integers get pandas' nullable types (`Int64`): plain ones become floats if a value is null, and lose digits.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise Misconfigured(
                "pandas is not installed", code="no_pandas", hint="pip install pandas, or use .arrow() or .rows()"
            ) from error
        import pyarrow as pa

        integers = {
            getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")()
            for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
        }
        return self._table.to_pandas(types_mapper=integers.get)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries by column: decimals as `Decimal`, times as `datetime`, binary as `bytes`.

        Two columns with the same name are an error: a dictionary cannot have both.
        """
        return list(self)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise InvalidInput(
                f"two columns are named {twice[0]!r}",
                code="same_column_twice",
                hint="give them different names with AS, or use .arrow()",
            )
        for batch in self._table.to_batches(max_chunksize=10_000):
            yield from batch.to_pylist()

    def __len__(self) -> int:
        return self.row_count

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order; their types are those of `arrow().schema`."""
        return list(self._table.column_names)
