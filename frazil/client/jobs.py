"""Jobs: submitted by kind, waited for, listed. Every kind of `frazil.requests.JOB_KINDS` runs through `run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from frazil.client.transport import JsonObject, JsonObjects, Transport
from frazil.errors import FrazilError, InvalidInput, Unavailable

OnProgress = Callable[[JsonObject], None]

_POLL_SECONDS = (0.1, 0.2, 0.3, 0.5)


class JobsClient:
    """The jobs of the pipeline. Calling it is the same as `list`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def run(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        table: str | None = None,
        timeout_s: float = 3600.0,
        on_progress: OnProgress | None = None,
    ) -> JsonObject:
        """Submit a job and wait for its result. It continues when the time is over or the caller leaves."""
        submitted = self.submit(kind, body, table=table)
        done = self.wait(submitted["id"], kind=kind, timeout_s=timeout_s, on_progress=on_progress)
        return {"table": submitted["table"], **done} if "table" in submitted else done

    def submit(self, kind: str, body: Mapping[str, Any], *, table: str | None = None) -> JsonObject:
        """Submit a job of this kind; its request is `body`, for kinds of a table without the table. `id` is its id."""
        from frazil.requests import JOB_KINDS

        if kind not in JOB_KINDS:
            raise InvalidInput(f"{kind!r} is not a job kind", code="bad_job", hint=f"use one of {', '.join(JOB_KINDS)}")
        path = JOB_KINDS[kind].path.format(table=quote(table or "", safe="."))
        return self._transport.call("POST", path, json_body=body, again=False)

    def get(self, job_id: str) -> JsonObject:
        """The state of a job: `state` is waiting, running, done or failed."""
        return self._transport.call("GET", f"/v1/jobs/{job_id}")

    def wait(
        self,
        job_id: str,
        *,
        kind: str | None = None,
        timeout_s: float = 3600.0,
        on_progress: OnProgress | None = None,
    ) -> JsonObject:
        """The job when it is done; raises the error of a failed job. It continues when the time is over.

        `on_progress` is called with each state that is seen meanwhile. A long job lets other jobs go first: another
        job continues it, and the result is that of both.
        """
        from frazil.requests import JOB_KINDS

        deadline = time.monotonic() + timeout_s
        job = self._wait_for_one(job_id, timeout_s, on_progress)
        while following := job.get("continued_by"):
            rest = self._wait_for_one(following, max(0.0, deadline - time.monotonic()), on_progress)
            summed = JOB_KINDS[kind or job["kind"]].summed
            job = {**rest, **{name: job[name] + rest[name] for name in summed}}
        return job

    def _wait_for_one(self, job_id: str, timeout_s: float, on_progress: OnProgress | None) -> JsonObject:
        deadline = time.monotonic() + timeout_s
        polls = 0
        while True:
            job = self.get(job_id)
            if job["state"] == "failed":
                error = job["error"]
                raise FrazilError(
                    error["message"], code=error["code"], hint=error["hint"], details=error.get("details")
                )
            if job["state"] == "done":
                return job
            if on_progress is not None:
                on_progress(job)
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"the job was not done within {timeout_s:g} s",
                    code="job_timeout",
                    hint=f"it continues; `frazil jobs {job_id}` shows its state",
                )
            time.sleep(_POLL_SECONDS[min(polls, len(_POLL_SECONDS) - 1)])
            polls += 1

    def list(self) -> JsonObjects:
        """All jobs that are open or were done recently, newest first."""
        found: JsonObjects = self._transport.call("GET", "/v1/jobs")["jobs"]
        return found

    __call__ = list
