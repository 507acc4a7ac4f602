"""The error tree. Every error has a message, a hint, and a flag that says whether a retry can help.

FrazilError
├── InvalidInput            the request is not valid; nothing was stored                422
│   ├── BadEvents           some events of a batch are wrong, each with its reason     422
│   └── TooLarge            a limit on size, depth or number was passed                413
├── NotFound                no such table, snapshot, journal entry                      404
├── Conflict                it exists already and is different                          409
├── Denied                  no token, a wrong one, or not enough rights             401, 403
├── Unavailable             a part is down, full or still starting; try again           503
│   └── VisibilityTimeout   the write is safe, its commit was not seen in time          504
├── DataLoss                bus and table do not match; an operator must decide         500
│   ├── BusGap              events between the watermark and the bus are gone
│   ├── BusReplaced         the table was fed from another stream
│   └── WatermarkTorn       the table's two watermarks differ (it was rolled back by hand)
└── Misconfigured           a setting, a file or the machine is not valid               exit 2
"""

from __future__ import annotations

from typing import Any


class FrazilError(Exception):
    """Root of all errors that frazil raises on purpose."""

    code = "internal"
    status = 500
    transient = False

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str | None = None,
        details: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details
        if code is not None:
            self.code = code

    def body(self) -> dict[str, Any]:
        """The JSON body of every error answer."""
        error: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.details is not None:
            error["details"] = self.details
        return {"error": error}


class InvalidInput(FrazilError):
    code = "invalid_input"
    status = 422


class BadEvents(InvalidInput):
    """`details` is a list of `{index, field, reason}`, at most 100 of them."""

    code = "bad_events"


class TooLarge(InvalidInput):
    code = "too_large"
    status = 413


class NotFound(FrazilError):
    code = "not_found"
    status = 404


class Conflict(FrazilError):
    code = "conflict"
    status = 409


class Denied(FrazilError):
    code = "unauthorized"
    status = 401


class Unavailable(FrazilError):
    code = "unavailable"
    status = 503
    transient = True

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.retry_after_seconds = retry_after_seconds


class VisibilityTimeout(Unavailable):
    """`details` carries the receipt: the write itself is durable."""

    code = "visibility_timeout"
    status = 504


class DataLoss(FrazilError):
    code = "data_loss"
    status = 500


class BusGap(DataLoss):
    code = "bus_gap"


class BusReplaced(DataLoss):
    code = "bus_replaced"


class WatermarkTorn(DataLoss):
    code = "watermark_torn"


class Misconfigured(FrazilError):
    code = "misconfigured"


def table_not_found(name: str) -> NotFound:
    """The same error for a table that does not exist and for one that the caller may not see."""
    return NotFound(
        f"there is no table {name.removeprefix('main.')[:200]!r}",
        code="table_not_found",
        hint="list the tables with `frazil tables list`, or create it with POST /v1/tables",
    )
