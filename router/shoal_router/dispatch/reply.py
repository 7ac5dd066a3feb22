"""What an engine answered, made fit for the client: errors in the shape of the API, without the engine's insides.

SGLang's error texts carry paths of its source files and echo input; its flat error form is not OpenAI's. Pure; called
by dispatch.exchange.
"""

from typing import Final

import orjson

from shoal_router.errors import INVALID_REQUEST, OVERLOADED, SERVER_ERROR, Shape, error_body
from shoal_router.upstream.connection import Headers

_MESSAGE_MAX: Final = 2000
_TRACE: Final = '\n\n  File "'
_DROPPED: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"server",
    )
)


def passed_on(headers: Headers) -> Headers:
    """The engine's headers that the client gets; framing is the router's own."""
    return [header for header in headers if header[0] not in _DROPPED]


def header(headers: Headers, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def retry_after_s(headers: Headers) -> float | None:
    """Seconds of a Retry-After header; the date form is not used by engines."""
    value = header(headers, b"retry-after")
    return float(value) if value is not None and value.isdigit() else None


def error_type(status: int) -> str:
    if status in (429, 503):
        return OVERLOADED
    return SERVER_ERROR if status >= 500 else INVALID_REQUEST


def error_message(body: bytes) -> tuple[str, str | None, str | None]:
    """Message, param and code of an engine's error body, whichever of its forms it has."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "The engine failed to answer this request.", None, None
    error = value.get("error", value) if isinstance(value, dict) else {}
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        error = {}
    message = error.get("message")
    text = message if isinstance(message, str) and message else "The engine refused this request."
    param, code = error.get("param"), error.get("code")
    return clean(text), param if isinstance(param, str) else None, code if isinstance(code, str) else None


def clean(message: str) -> str:
    """Without the source location that the engine appends."""
    return message.partition(_TRACE)[0][:_MESSAGE_MAX]


def client_error(shape: Shape, status: int, body: bytes) -> bytes:
    """An engine's error answer as the client gets it."""
    message, param, code = error_message(body)
    return error_body(shape, status, message, error_type(status), param, code)


def error_event(shape: Shape, status: int, message: str, code: str | None) -> bytes:
    """The event that ends a broken stream."""
    return b"data: " + error_body(shape, status, message, error_type(status), None, code) + b"\n\n"
