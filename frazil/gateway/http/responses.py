"""Answers: JSON, and every error in the same shape."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from frazil.errors import Denied, FrazilError, Unavailable
from frazil.registry import Job

log = logging.getLogger(__name__)


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def accepted(job: Job, plan: Mapping[str, Any] | None = None) -> Response:
    """The answer to the request for a job: its result will be at /v1/jobs/{id}."""
    about = {"subject": job.subject.removeprefix("main.")} if plan is None else plan
    return answer({"id": job.id, "state": "waiting", **about}, 202)


def _error_body(error: FrazilError) -> dict[str, Any]:
    """The body of an error. What it quotes of a request may be no text, and must not be the error's end."""
    body = error.body()
    try:
        msgspec.json.encode(body)
    except (UnicodeEncodeError, TypeError, ValueError):
        words = {"code": error.code, "message": _plain(error.message), "hint": _plain(error.hint)}
        return {"error": words}
    return body


def _plain(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def error_answer(error: BaseException) -> Response:
    """The answer for any exception. An unexpected one is answered with an incident number and without its message."""
    if isinstance(error, FrazilError):
        headers = {}
        if isinstance(error, Unavailable):
            headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
        if isinstance(error, Denied) and error.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if error.status >= 500 and not isinstance(error, Unavailable):
            log.error("%s", error.message, extra={"code": error.code})
        return answer(_error_body(error), error.status, headers)
    if isinstance(error, HTTPException):
        return _http_answer(error)
    incident = uuid.uuid4().hex[:12]
    log.error("unexpected error, incident %s", incident, exc_info=error, extra={"incident": incident})
    unexpected = FrazilError(
        "something went wrong inside the gateway",
        hint=f"look for incident {incident} in the gateway's log; retrying with the same event ids is safe",
        details={"incident": incident},
    )
    return answer(unexpected.body(), 500)


def _http_answer(error: HTTPException) -> Response:
    if error.status_code == 405:
        refused = FrazilError("this address does not take this method", code="method_not_allowed", hint="see GET /")
    else:
        refused = FrazilError(str(error.detail), code="http_error", hint="see GET /")
    return answer(refused.body(), error.status_code, dict(error.headers or {}))
