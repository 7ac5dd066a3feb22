"""Is a request body one that an engine can take? Pure: bytes in, a `Checked` body or the `ApiError` to answer out.

Everything that is certain to be refused is refused here, so that a malformed request costs no engine anything; one
kind must never get through: token ids outside the vocabulary, which kill the whole engine process (they are not
checked there). Field rules are tables; a field not named here is passed on as it is. Called by dispatch.dispatcher.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from shoal_router.dispatch import api as apis
from shoal_router.dispatch.api import Api
from shoal_router.errors import ApiError

N_MAX: Final = 128
MESSAGES_MAX: Final = 65_536
PROMPTS_MAX: Final = 4_096
IDS_MAX: Final = 16 << 20
ID_BOUND_UNKNOWN: Final = 1 << 32
"""Where no vocabulary size is known: what a token id is stored in."""
RID_LENGTH: Final = 32


class Checked:
    """A body that passed. `doc` is the parsed object; nothing writes to it."""

    __slots__ = ("batch", "doc", "rid", "stream", "usage_unset")

    def __init__(self, doc: dict[str, Any], stream: bool, usage_unset: bool, rid: str | None, batch: bool) -> None:
        self.doc = doc
        self.stream = stream
        self.usage_unset = usage_unset
        """A stream whose client said nothing about usage: the router may ask for it and take it out again."""
        self.rid = rid
        """The client's own request id."""
        self.batch = batch
        """Several prompts or several choices: the engine gives each its own id."""


type_name = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}

Rule = Callable[[Any], str | None]
"""Value (never None) to the complaint, or None."""


def integer(low: int, high: int | None = None) -> Rule:
    def rule(value: Any) -> str | None:
        if type(value) is not int:
            return "must be an integer"
        if value < low or (high is not None and value > high):
            return f"must be at least {low}" if high is None else f"must be between {low} and {high}"
        return None

    return rule


def number(low: float | None = None, high: float | None = None, above: bool = False) -> Rule:
    def rule(value: Any) -> str | None:
        if type(value) is not int and type(value) is not float:
            return "must be a number"
        if low is not None and (value < low or (above and value == low)):
            return f"must be {'above' if above else 'at least'} {low:g}"
        if high is not None and value > high:
            return f"must be at most {high:g}"
        return None

    return rule


def of_type(*types: type) -> Rule:
    names = " or ".join(type_name[t] for t in types)

    def rule(value: Any) -> str | None:
        return None if type(value) in types else f"must be of type {names}"

    return rule


def _strings(value: Any) -> str | None:
    if type(value) is str or (type(value) is list and all(type(item) is str for item in value)):
        return None
    return "must be a string or an array of strings"


def _objects(value: Any) -> str | None:
    if type(value) is list and all(type(item) is dict for item in value):
        return None
    return "must be an array of objects"


_COMMON: Final[dict[str, Rule]] = {
    "stream": of_type(bool),
    "stream_options": of_type(dict),
    "max_tokens": integer(0),
    "min_tokens": integer(0),
    "n": integer(1, N_MAX),
    "temperature": number(0),
    "top_p": number(0, 1, above=True),
    "min_p": number(0, 1),
    "top_k": integer(-1),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "stop": _strings,
    "seed": of_type(int),
    "user": of_type(str),
    "logit_bias": of_type(dict),
    "response_format": of_type(dict),
    "priority": of_type(int),
    "session_id": of_type(str),
    "prompt_cache_key": of_type(str),
    "metadata": of_type(dict),
}
_CHAT: Final[dict[str, Rule]] = {
    **_COMMON,
    "max_completion_tokens": integer(0),
    "tools": _objects,
    "tool_choice": of_type(str, dict),
    "logprobs": of_type(bool),
    "top_logprobs": integer(0),
    "reasoning_effort": of_type(str),
    "chat_template_kwargs": of_type(dict),
    "rid": of_type(str),
}
_COMPLETIONS: Final[dict[str, Rule]] = {
    **_COMMON,
    "logprobs": integer(0),
    "echo": of_type(bool),
    "suffix": of_type(str),
    "best_of": integer(1, N_MAX),
    "rid": _strings,
}
_GENERATE: Final[dict[str, Rule]] = {"stream": of_type(bool), "rid": _strings}
_SAMPLING: Final[dict[str, Rule]] = {
    "n": integer(1, N_MAX),
    "max_new_tokens": integer(0),
    "min_new_tokens": integer(0),
    **{
        name: _COMMON[name]
        for name in ("temperature", "top_p", "min_p", "top_k", "frequency_penalty", "presence_penalty")
    },
    "stop": _strings,
}
_TOKENIZE: Final[dict[str, Rule]] = {"prompt": _strings, "messages": _objects}
_RULES: Final[dict[Api, dict[str, Rule]]] = {
    apis.CHAT: _CHAT,
    apis.COMPLETIONS: _COMPLETIONS,
    apis.GENERATE: _GENERATE,
    apis.TOKENIZE: _TOKENIZE,
    apis.DETOKENIZE: {},
}


def invalid(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, message, "invalid_request", param=param)


def parse(body: bytes) -> dict[str, Any] | ApiError:
    """The body as a JSON object."""
    if not body:
        return invalid("The request has no body; a JSON object is required.")
    try:
        doc = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return invalid(f"The request body is not valid JSON: {error}")
    if type(doc) is not dict:
        return invalid(f"The request body must be a JSON object, not {type_name.get(type(doc), 'null')}.")
    return doc


def check(api: Api, doc: dict[str, Any], vocab_size: int | None, context_tokens: int | None) -> Checked | ApiError:
    """All rules of one API on a parsed body. The model name is checked by the caller, who needs it first."""
    complaint = _check_fields(doc, _RULES[api])
    if complaint is not None:
        return complaint
    ids = _Ids(vocab_size or ID_BOUND_UNKNOWN, min(context_tokens or IDS_MAX, IDS_MAX))
    complaint, prompts = _PROMPTS[api](doc, ids)
    if complaint is not None:
        return complaint
    rid = doc.get("rid")
    choices = doc.get("n") if api.generates else None  # elsewhere it is nobody's field, and unchecked
    if api is apis.GENERATE:
        complaint, choices = _check_sampling(doc.get("sampling_params"))
        if complaint is not None:
            return complaint
    stream = api.generates and doc.get("stream") is True
    return Checked(
        doc,
        stream,
        stream and api is not apis.GENERATE and "stream_options" not in doc,
        rid if type(rid) is str else None,
        prompts > 1 or (choices or 1) > 1 or type(rid) is list,
    )


def _check_fields(doc: dict[str, Any], rules: dict[str, Rule], prefix: str = "") -> ApiError | None:
    for name, value in doc.items():
        if value is not None and (rule := rules.get(name)) is not None and (complaint := rule(value)) is not None:
            return invalid(f"'{prefix}{name}' {complaint}.", prefix + name)
    return None


def _check_sampling(params: Any) -> tuple[ApiError | None, int | None]:
    if params is None:
        return None, None
    several = params if type(params) is list else [params]
    if len(several) > PROMPTS_MAX or not all(type(item) is dict for item in several):
        return invalid("'sampling_params' must be an object or an array of objects.", "sampling_params"), None
    for item in several:
        complaint = _check_fields(item, _SAMPLING, "sampling_params.")
        if complaint is not None:
            return complaint, None
    return None, max((item.get("n") or 1 for item in several), default=None)


class _Ids:
    """Bounds of token ids."""

    __slots__ = ("bound", "count_max")

    def __init__(self, bound: int, count_max: int) -> None:
        self.bound = bound
        self.count_max = count_max

    def complaint(self, ids: list[Any], param: str) -> ApiError | None:
        if not ids:
            return invalid(f"'{param}' must not be empty.", param)
        if len(ids) > self.count_max:
            return ApiError(
                400,
                f"'{param}' has {len(ids)} tokens; the longest context here is {self.count_max}.",
                "invalid_request",
                param=param,
                code="context_length_exceeded",
            )
        if set(map(type, ids)) != {int}:
            return invalid(f"'{param}' must hold integers only.", param)
        if min(ids) < 0 or max(ids) >= self.bound:
            return invalid(f"'{param}' has a token id outside the vocabulary (0 to {self.bound - 1}).", param)
        return None


def _check_messages(doc: dict[str, Any], ids: _Ids) -> tuple[ApiError | None, int]:
    messages = doc.get("messages")
    if type(messages) is not list:
        what = "is required and" if "messages" not in doc else ""
        return invalid(f"'messages' {what} must be an array of messages.".replace("  ", " "), "messages"), 0
    if not messages:
        return invalid("'messages' must not be empty.", "messages"), 0
    if len(messages) > MESSAGES_MAX:
        return invalid(f"'messages' has more than {MESSAGES_MAX} messages.", "messages"), 0
    for index, message in enumerate(messages):
        complaint = _message_complaint(message)
        if complaint is not None:
            where = f"messages[{index}]{complaint[0]}"
            return invalid(f"'{where}' {complaint[1]}.", where), 0
    if doc.get("input_ids") is not None:
        return _check_id_lists(doc["input_ids"], "input_ids", ids)[0], 1
    return None, 1


def _message_complaint(message: Any) -> tuple[str, str] | None:
    if type(message) is not dict:
        return "", "must be an object"
    role = message.get("role")
    if type(role) is not str or not role:
        return ".role", "must be a string"
    content = message.get("content")
    if content is None or type(content) is str:
        return None
    if type(content) is not list:
        return ".content", "must be a string, an array of parts, or null"
    for part in content:
        if type(part) is not dict or type(part.get("type")) is not str:
            return ".content", "must have parts that are objects with a 'type'"
        if part["type"] == "text" and type(part.get("text")) is not str:
            return ".content", "must have a string in every text part"
    return None


def _check_id_lists(value: Any, param: str, ids: _Ids) -> tuple[ApiError | None, int]:
    """One list of ids, or several."""
    if type(value) is not list or not value:
        return invalid(f"'{param}' must be a non-empty array of token ids, or of such arrays.", param), 0
    if type(value[0]) is not list:
        return ids.complaint(value, param), 1
    if len(value) > PROMPTS_MAX:
        return invalid(f"'{param}' has more than {PROMPTS_MAX} prompts.", param), 0
    if not all(type(item) is list for item in value):
        return invalid(f"'{param}' must not mix token ids and arrays.", param), 0
    for item in value:
        complaint = ids.complaint(item, param)
        if complaint is not None:
            return complaint, len(value)
    return None, len(value)


def _check_text_or_ids(value: Any, param: str, ids: _Ids) -> tuple[ApiError | None, int]:
    if type(value) is str:
        return None, 1
    if type(value) is list and value and type(value[0]) is str:
        if len(value) > PROMPTS_MAX:
            return invalid(f"'{param}' has more than {PROMPTS_MAX} prompts.", param), 0
        if not all(type(item) is str for item in value):
            return invalid(f"'{param}' must not mix strings and token ids.", param), 0
        return None, len(value)
    if type(value) is list:
        return _check_id_lists(value, param, ids)
    return invalid(f"'{param}' must be a string, an array of strings, or an array of token ids.", param), 0


def _check_prompt(doc: dict[str, Any], ids: _Ids) -> tuple[ApiError | None, int]:
    if doc.get("prompt") is None:
        return invalid("'prompt' is required.", "prompt"), 0
    return _check_text_or_ids(doc["prompt"], "prompt", ids)


def _check_generate(doc: dict[str, Any], ids: _Ids) -> tuple[ApiError | None, int]:
    given = [name for name in ("text", "input_ids", "input_embeds") if doc.get(name) is not None]
    if len(given) != 1:
        return invalid("Exactly one of 'text', 'input_ids' and 'input_embeds' is required."), 0
    value = doc[given[0]]
    if given[0] == "input_ids":
        return _check_id_lists(value, "input_ids", ids)
    if given[0] == "input_embeds":
        return (
            (None, 1) if type(value) is list and value else (invalid("'input_embeds' must be an array.", given[0]), 0)
        )
    if type(value) is str:
        return None, 1
    if type(value) is not list or not value or len(value) > PROMPTS_MAX or not all(type(item) is str for item in value):
        return invalid(f"'text' must be a string or an array of at most {PROMPTS_MAX} strings.", "text"), 0
    return None, len(value)


def _check_tokenize(doc: dict[str, Any], ids: _Ids) -> tuple[ApiError | None, int]:
    if doc.get("prompt") is None and doc.get("messages") is None:
        return invalid("'prompt' or 'messages' is required.", "prompt"), 0
    return _check_messages(doc, ids) if doc.get("prompt") is None else (None, 1)


def _check_detokenize(doc: dict[str, Any], ids: _Ids) -> tuple[ApiError | None, int]:
    tokens = doc.get("tokens")
    if type(tokens) is not list:
        return invalid("'tokens' must be an array of token ids, or of such arrays.", "tokens"), 0
    listed: list[Any] = []
    for item in tokens:
        if type(item) is list:
            listed += item
        else:
            listed.append(item)
        if len(listed) > IDS_MAX:
            break
    return (ids.complaint(listed, "tokens"), 1) if listed else (None, 1)


_PROMPTS: Final[Mapping[Api, Callable[[dict[str, Any], _Ids], tuple[ApiError | None, int]]]] = {
    apis.CHAT: _check_messages,
    apis.COMPLETIONS: _check_prompt,
    apis.GENERATE: _check_generate,
    apis.TOKENIZE: _check_tokenize,
    apis.DETOKENIZE: _check_detokenize,
}
