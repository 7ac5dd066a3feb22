"""Reading request bodies: JSON, content type, and the types of the fields that the simulator looks at.

Unknown fields are ignored on the OpenAI routes, as in the engine. Values are coerced as its models coerce them
(numbers in strings, "true"), and refused with the same kind of error where they cannot be.
"""

import math
from collections.abc import Mapping
from typing import Any

import orjson

from shoal_sim.http import errors
from shoal_sim.http.errors import ApiError

ROLES = frozenset(("system", "user", "assistant", "tool", "function", "developer", "latest_reminder", "root"))
_TRUE = frozenset(("true", "1", "yes", "on", "t", "y"))
_FALSE = frozenset(("false", "0", "no", "off", "f", "n"))


def require_json_type(content_type: str | None) -> None:
    """The OpenAI routes take nothing but JSON."""
    if (content_type or "").split(";")[0].strip().lower() != "application/json":
        detail = {
            "loc": ["header", "content-type"],
            "msg": "Unsupported Media Type: Only 'application/json' is allowed",
            "type": "value_error",
        }
        raise errors.flat(f"1 validation error:\n  {detail}", errors.VALIDATION)


def parse(data: bytes) -> Any:
    if not data:
        raise errors.invalid("missing", (), "Field required", None)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise errors.invalid("json_invalid", (error.pos,), "JSON decode error", {}) from error


def parse_object(data: bytes, not_object: ApiError | None = None) -> dict[str, Any]:
    value = parse(data)
    if not isinstance(value, dict):
        raise not_object or errors.invalid(
            "model_attributes_type", (), "Input should be a valid dictionary or object to extract fields from", value
        )
    return value


def integer(body: dict[str, Any], field: str, default: int | None = None) -> int | None:
    value = body.get(field)
    if value is None:
        return default
    number = _number(value)
    if number is None or not number.is_integer():
        raise errors.invalid("int_parsing", (field,), "Input should be a valid integer", value)
    return value if isinstance(value, int) else int(number)


def decimal(body: Mapping[str, Any], field: str, default: float) -> float:
    value = body.get(field)
    if value is None:
        return default
    number = _number(value)
    if number is None:
        message = "Input should be a valid number, unable to parse string as a number"
        raise errors.invalid("float_parsing", (field,), message, value)
    return number


def boolean(body: dict[str, Any], field: str, default: bool = False) -> bool:
    value = body.get(field)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    message = "Input should be a valid boolean, unable to interpret input"
    raise errors.invalid("bool_parsing", (field,), message, value)


def string(body: dict[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is None or isinstance(value, str):
        return value
    raise errors.invalid("string_type", (field,), "Input should be a valid string", value)


def strings(body: dict[str, Any], field: str) -> tuple[str, ...]:
    """A string or a list of strings; empty ones are dropped."""
    value = body.get(field)
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise errors.invalid("string_type", (field,), "Input should be a valid string", value)
    return tuple(item for item in items if item)


def integers(body: dict[str, Any], field: str) -> list[int]:
    value = body.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise errors.invalid("list_type", (field,), "Input should be a valid list", value)
    return value


def check_messages(body: dict[str, Any]) -> None:
    if "messages" not in body:
        raise errors.missing("messages", body)
    messages = body["messages"]
    if not isinstance(messages, list):
        raise errors.invalid("list_type", ("messages",), "Input should be a valid list", messages)
    for index, message in enumerate(messages):
        _check_message(index, message)
    if not messages:
        raise errors.flat("Messages cannot be empty.")


def _check_message(index: int, message: Any) -> None:
    place = ("messages", index)
    if not isinstance(message, dict):
        raise errors.invalid("model_attributes_type", place, "Input should be a valid dictionary", message)
    role = message.get("role")
    if not isinstance(role, str) or role.lower() not in ROLES:
        text = f"Value error, 'role' must be one of {', '.join(map(repr, sorted(ROLES)))} (case-insensitive)."
        raise errors.invalid("value_error", (*place, "role"), text, role)
    content = message.get("content")
    if content is None and role == "user":
        raise errors.invalid("missing", (*place, "content"), "Field required", message)
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise errors.invalid("string_type", (*place, "content", "str"), "Input should be a valid string", content)
    if not all(isinstance(part, dict) for part in content):
        raise errors.invalid("model_attributes_type", (*place, "content"), "Input should be a valid list", content)


def check_sampling(temperature: float, top_p: float) -> None:
    if not math.isfinite(temperature) or temperature < 0:
        raise errors.flat(f"temperature must be a non-negative finite number, got {temperature}.")
    if not 0 < top_p <= 1:
        raise errors.flat(f"top_p must be in (0, 1], got {top_p}.")


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None
