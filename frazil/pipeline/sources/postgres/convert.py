"""Conversion of the driver's Arrow columns to columns of our types, and the values that do not fit."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from frazil.events.declaration import TIMESTAMP, ColumnType
from frazil.pipeline.sources.postgres.type_mapping import LossPolicy
from frazil.pipeline.sources.postgres.uuids import printed

# Postgres counts from 2000 and keeps its infinities at the ends of the number. The driver adds the thirty years without
# looking, so that they come out just above the least number, where no date of Postgres (4713 BC and later) can be.
_DAYS_BEFORE_2000 = 10_957
_MICROSECONDS_BEFORE_2000 = 946_684_800_000_000
_INFINITE_DAYS = -(1 << 31) + _DAYS_BEFORE_2000 - 1
_INFINITE_MICROSECONDS = -(1 << 63) + _MICROSECONDS_BEFORE_2000 - 1
_LEAST_DAYS = -2_500_000
_LEAST_MICROSECONDS = _LEAST_DAYS * 86_400_000_000
_LAST_DAY, _FIRST_DAY = 2_932_896, -719_162
_LAST_MICROSECOND, _FIRST_MICROSECOND = (_LAST_DAY + 1) * 86_400_000_000 - 1, _FIRST_DAY * 86_400_000_000


class ValueUnfit(Exception):
    """Values that the type cannot hold: what they are, how many, and the setting that decides about them."""

    def __init__(self, what: str, count: int, setting: str) -> None:
        super().__init__(what)
        self.what, self.count, self.setting = what, count, setting


def converted(column: pa.Array, to: ColumnType, loss_policy: LossPolicy) -> pa.Array:
    """The column as `to`; raises `ValueUnfit`."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if to.kind == "decimal":
        return _decimals(column, to.arrow, loss_policy)
    if to.kind == "date":
        return _days(column, loss_policy)
    if to.kind == "timestamp":
        return _instants(column, loss_policy)
    if to.kind == "list":
        elements = converted(column.values, to.children[0][1], loss_policy)
        return pa.Array.from_buffers(
            to.arrow, len(column), column.buffers()[:2], column.null_count, column.offset, [elements]
        )
    if pa.types.is_fixed_size_binary(column.type):
        return printed(column)
    return column if column.type == to.arrow else column.cast(to.arrow)


def _decimals(texts: pa.Array, to: pa.DataType, loss_policy: LossPolicy) -> pa.Array:
    try:
        return texts.cast(to)
    except pa.ArrowInvalid:
        wrong = pc.equal(texts, "NaN")
        count = pc.sum(wrong).as_py() or 0
        if not count:
            raise
        if loss_policy.nan == "error":
            raise ValueUnfit("NaN", count, "nan") from None
        return pc.if_else(wrong, pa.scalar(None, pa.string()), texts).cast(to)


def _days(dates: pa.Array, loss_policy: LossPolicy) -> pa.Array:
    days = dates.view(pa.int32())
    least = pc.min(days).as_py()
    if least is None or least >= _LEAST_DAYS:
        return dates
    wrong, beyond = pc.less(days, _LEAST_DAYS), pc.less_equal(days, _INFINITE_DAYS)
    return _bounded(days, wrong, beyond, _FIRST_DAY, _LAST_DAY, loss_policy).view(pa.date32())


def _instants(times: pa.Array, loss_policy: LossPolicy) -> pa.Array:
    instants = times.view(pa.int64())
    least = pc.min(instants).as_py()
    if least is None or least >= _LEAST_MICROSECONDS:
        return instants.view(TIMESTAMP)
    # Years after 294246 run over too and come out below the infinities: they are as good as infinite.
    wrong, beyond = pc.less(instants, _LEAST_MICROSECONDS), pc.less_equal(instants, _INFINITE_MICROSECONDS)
    return _bounded(instants, wrong, beyond, _FIRST_MICROSECOND, _LAST_MICROSECOND, loss_policy).view(TIMESTAMP)


def _bounded(
    numbers: pa.Array, wrong: pa.Array, beyond: pa.Array, first: int, last: int, loss_policy: LossPolicy
) -> pa.Array:
    if loss_policy.infinity == "error":
        raise ValueUnfit("infinity, or a year beyond our range,", pc.sum(wrong).as_py(), "infinity")
    if loss_policy.infinity == "null":
        return pc.if_else(wrong, pa.scalar(None, numbers.type), numbers)
    clamped = pc.if_else(beyond, pa.scalar(last, numbers.type), pa.scalar(first, numbers.type))
    return pc.if_else(wrong, clamped, numbers)
