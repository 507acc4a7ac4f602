"""The waiting half of a client: jobs that the pipeline was asked to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from frazil.client.transport import Transport
from frazil.errors import FrazilError, Unavailable

_LOOK_SECONDS = (0.1, 0.2, 0.3, 0.5)


class Jobs(Transport):
    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that are open or were done lately, newest first."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/jobs")["jobs"]
        return found

    def job(self, job_id: str) -> dict[str, Any]:
        """How a job stands: its `state` is waiting, running, done or failed."""
        return self._call("GET", f"/v1/jobs/{job_id}")

    def wait_for_job(
        self, job_id: str, *, timeout_s: float = 3600.0, tell: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """The job once it is done; raises what it failed with. It goes on when the time is over or the caller leaves.

        `tell` is called with each state that is seen meanwhile.
        """
        deadline = time.monotonic() + timeout_s
        looks = 0
        while True:
            told = self.job(job_id)
            if told["state"] == "failed":
                error = told["error"]
                raise FrazilError(
                    error["message"], code=error["code"], hint=error["hint"], details=error.get("details")
                )
            if told["state"] == "done":
                return told
            if tell is not None:
                tell(told)
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"the pipeline has not done it within {timeout_s:g} s",
                    code="job_timeout",
                    hint=f"it goes on; `frazil jobs {job_id}` tells when it is done",
                )
            time.sleep(_LOOK_SECONDS[min(looks, len(_LOOK_SECONDS) - 1)])
            looks += 1
