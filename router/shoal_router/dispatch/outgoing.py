"""A client's request as engines get it: its body with the few edits that the router makes, and its head.

Made once a request by dispatch.exchange, put together for each attempt; dispatch.slicer reads the body it is to slice.
"""

from collections.abc import Callable
from typing import Final

import orjson

from shoal_router.dispatch import api as apis
from shoal_router.dispatch import splice
from shoal_router.dispatch.api import Api
from shoal_router.dispatch.checks import Checked
from shoal_router.dispatch.engine import EngineInfo
from shoal_router.upstream.connection import Headers

_USAGE: Final = b'"stream_options":{"include_usage":true}'
JOINED_BYTES_MAX: Final = 64 << 10
"""Up to this size head and body of a request are copied into one write; above, a second write is cheaper."""


class Outgoing:
    """See the module. `rid` is the id that the engine knows the request by; empty where there is none."""

    __slots__ = ("_named", "_own_rid", "_usage_unset", "api", "body", "headers", "rid")

    def __init__(self, api: Api, checked: Checked, body: bytes, headers: Headers, new_rid: Callable[[], str]) -> None:
        self.api = api
        self.body = body
        self.headers = headers
        self._named = checked.doc.get("model")
        self._own_rid = bool(checked.rid)
        self._usage_unset = checked.usage_unset
        self.rid = checked.rid or ("" if checked.batch or not api.generates else new_rid())
        if self.rid and not self._own_rid and "rid" in checked.doc:
            # null or empty: a second field of that name would leave it to the engine's parser which one counts.
            self.body = splice.with_value(body, "rid", b'"%b"' % self.rid.encode())
            self._own_rid = True

    def strips_usage(self, info: EngineInfo | None) -> bool:
        """Ask for usage that the client did not ask for, and take it out of the stream again."""
        return self._usage_unset and info is not None and not info.usage_by_default

    def parts(self, served_name: str, authority: bytes, info: EngineInfo | None) -> list[bytes | memoryview]:
        """Head and body as they go to an engine."""
        body = self.body
        named = self._named
        if self.api is not apis.GENERATE and named != served_name and adapter(named, served_name) is None:
            body = splice.with_value(body, "model", orjson.dumps(served_name))
        fields = b""
        if self.rid and not self._own_rid:
            fields = b'"rid":"' + self.rid.encode() + b'"'
        if self.strips_usage(info):
            fields += _USAGE if not fields else b"," + _USAGE
        parts: list[bytes | memoryview] = splice.with_fields(body, fields) if fields else [body]
        length = 0
        for part in parts:
            length += len(part)
        head: list[bytes | memoryview] = [
            b"POST ",
            self.api.path,
            b" HTTP/1.1\r\nhost: ",
            authority,
            b"\r\ncontent-type: application/json\r\ncontent-length: ",
            str(length).encode(),
            b"\r\n",
        ]
        for name, value in self.headers:
            head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n")
        if length < JOINED_BYTES_MAX:
            head += parts
            return [b"".join(head)]
        return [b"".join(head), *parts]


def adapter(named: object, served_name: str) -> str | None:
    """`base:adapter` names a LoRA adapter of the served model; the OpenAI routes of the engine read it."""
    prefix = served_name + ":"
    return named[len(prefix) :] if isinstance(named, str) and named.startswith(prefix) else None
