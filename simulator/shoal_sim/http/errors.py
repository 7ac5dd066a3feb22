"""The engine's error answers. It has several shapes, by route and by who found the error; see the golden captures."""

from dataclasses import dataclass
from typing import Any

VALIDATION = "Bad Request"
BAD_REQUEST = "BadRequestError"


@dataclass(slots=True)
class ApiError(Exception):
    """Answers a request with `body` (JSON) or, where that is None, with `text`."""

    status: int
    body: Any = None
    text: str | None = None


def flat(message: str, kind: str = BAD_REQUEST, status: int = 400) -> ApiError:
    """The form of the OpenAI routes: not nested under "error"."""
    return ApiError(status, {"object": "error", "message": message, "type": kind, "param": None, "code": status})


def nested(message: str, status: int = 400) -> ApiError:
    """The form of /generate."""
    return ApiError(status, {"error": {"message": message}})


def invalid(kind: str, location: tuple[str | int, ...], message: str, given: Any) -> ApiError:
    """A body that does not fit the route's schema."""
    detail = {"type": kind, "loc": ("body", *location), "msg": message, "input": given}
    return flat(f"1 validation error:\n  {detail}", VALIDATION)


def missing(field: str, given: Any) -> ApiError:
    return invalid("missing", (field,), "Field required", given)


def internal() -> ApiError:
    return ApiError(500, text="Internal Server Error")
