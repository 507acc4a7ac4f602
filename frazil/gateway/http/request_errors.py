"""Request errors: what is wrong with a request before its route is known."""

from __future__ import annotations

from frazil.errors import InvalidInput


class BadRequest(InvalidInput):
    """It is not HTTP, or HTTP that two programs may read in two ways."""

    code = "bad_request"
    status = 400


class UrlTooLong(InvalidInput):
    code = "url_too_long"
    status = 414


class HeadersTooLarge(InvalidInput):
    code = "headers_too_large"
    status = 431


class RequestTimeout(InvalidInput):
    code = "request_timeout"
    status = 408
