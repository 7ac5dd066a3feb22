"""Errors that the router answers itself, in the shape of the API that was called. A leaf."""

from dataclasses import dataclass
from typing import Final, Literal

import orjson

Shape = Literal["openai", "sglang"]

INVALID_REQUEST: Final = "invalid_request_error"
SERVER_ERROR: Final = "server_error"
OVERLOADED: Final = "overloaded_error"

REASONS: Final[dict[int, bytes]] = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    411: b"Length Required",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class ApiError:
    """One refusal. `reason` is its label in metrics: a closed set, never text from the request."""

    status: int
    message: str
    reason: str
    type: str = INVALID_REQUEST
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None
    allow: str | None = None
    """Methods for a 405."""

    def body(self, shape: Shape) -> bytes:
        return error_body(shape, self.status, self.message, self.type, self.param, self.code)


def error_body(shape: Shape, status: int, message: str, type_: str, param: str | None, code: str | None) -> bytes:
    """JSON of one error. OpenAI: message, type, param, code. SGLang's /generate: message, and the status as code."""
    error: dict[str, object]
    if shape == "openai":
        error = {"message": message, "type": type_, "param": param, "code": code}
    else:
        error = {"message": message, "type": type_, "code": status}
    return orjson.dumps({"error": error})
