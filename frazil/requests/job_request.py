"""Job requests: requests to the pipeline, as a body on the wire and as the parameters of a job."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from frazil.requests.decode import Request, decode_request


class JobRequest(Request, frozen=True, kw_only=True):
    """Base of the requests that become jobs. `parse` of the parameters gives the request again."""

    @classmethod
    def parse(cls, body: object) -> Self:
        """The request in a JSON value, or in the parameters of a job, also of one that an older version submitted."""
        return decode_request(body, cls)

    def params(self) -> dict[str, Any]:
        """As the job carries them."""
        return dict(msgspec.to_builtins(self))
