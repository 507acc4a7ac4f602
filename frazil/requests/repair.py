"""Repair requests: every field of POST /v1/tables/{table}/repair."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from frazil.requests.decode import Refusal, Request, RequestWords

Repaired = Literal["bus", "watermark"]


class RepairRequest(Request, frozen=True, kw_only=True):
    words: ClassVar[RequestWords] = RequestWords(
        "a repair",
        "bad_repair",
        "a repair is {what, accept_loss?}",
        '{"what": "bus"}',
        unknown_field_code="bad_repair",
        unknown_fields_first=True,
    )

    what: Annotated[Repaired, Refusal("only the bus or the watermark can be repaired", '"what": "bus"')]
    accept_loss: bool = False
