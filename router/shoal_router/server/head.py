"""Strict checks on the raw bytes of a request's head, beyond those of llhttp, and what the router needs to know of it.

Why raw bytes: two parsers that read one head differently are how requests get smuggled, and a parser's view hides what
it forgave. A head that passes has one meaning only. Pure; called by server.connection.
"""

import re
import urllib.parse
from dataclasses import dataclass
from typing import Final

from shoal_router.errors import ApiError

Headers = list[tuple[bytes, bytes]]

_HOST: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]+")
_LINE_END_SPACE: Final = (b"\r\n ", b"\r\n\t")
_UPGRADE: Final = re.compile(rb"(?i)\r\nupgrade(?=:)")
_FRAMING: Final = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect", b"connection"))
_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"content-type",
        b"host",
        b"expect",
        b"accept-encoding",
        b"http2-settings",
    )
)
"""Not passed on. `accept-encoding` among them: the router reads what engines answer."""
_INTERNAL: Final = (b"x-shoal-", b"x-override-")
"""Our own, and SGLang's header overrides, which could pin a request's id or place behind the router's back."""


@dataclass(frozen=True, slots=True)
class Framing:
    """What a head says about the message it opens."""

    length: int | None
    """Content-Length; None: no body, or a chunked one."""
    chunked: bool
    expects_continue: bool
    close: bool
    """The client asked to close after the answer."""


def bad(message: str) -> ApiError:
    return ApiError(400, message, "malformed_http")


def too_large(bytes_max: int) -> ApiError:
    return ApiError(431, f"The request's header is larger than {bytes_max} bytes.", "header_too_large")


def partial_complaint(head: bytes, bytes_max: int) -> ApiError | None:
    """A head that has not ended yet: is it already beyond repair?"""
    if len(head) > bytes_max:
        return too_large(bytes_max)
    if head.count(b"\n") != head.count(b"\r\n"):
        return bad("A line of the header ends without CR LF.")
    return bad("NUL in the header.") if b"\0" in head else None


def complaint(head: bytes, bytes_max: int) -> ApiError | None:
    """A whole head, its blank line included."""
    lines = head.count(b"\r\n")
    if len(head) > bytes_max:
        return too_large(bytes_max)
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        return bad("A line of the header ends without CR LF.")
    if b"\0" in head:
        return bad("NUL in the header.")
    if _LINE_END_SPACE[0] in head or _LINE_END_SPACE[1] in head:
        return bad("A header is folded over several lines.")
    if b" :" in head and any(line.partition(b":")[0].endswith((b" ", b"\t")) for line in head.split(b"\r\n")[1:]):
        return bad("Space between a header's name and its colon.")
    return None


def without_upgrade(head: bytes) -> bytes:
    """The head with an Upgrade header made unknown: an upgrade is never made, and the request stands without it."""
    return _UPGRADE.sub(rb"\r\nx-ignored-upgrade", head) if b"pgrade" in head or b"PGRADE" in head else head


def framing(headers: Headers, version: str) -> Framing | ApiError:
    """Check the headers that frame a message. Names are lower case."""
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _FRAMING:
            if name in seen and name != b"connection":
                return bad(f"The header {name.decode()} is repeated.")
            seen[name] = value if name not in seen else seen[name] + b"," + value
    http10 = version == "1.0"
    complaint = _framing_complaint(seen, http10)
    if complaint is not None:
        return complaint
    length = seen.get(b"content-length")
    options = [option.strip() for option in seen.get(b"connection", b"").lower().split(b",")]
    return Framing(
        length=int(length) if length is not None else None,
        chunked=b"transfer-encoding" in seen,
        expects_continue=b"expect" in seen,
        close=b"close" in options or (http10 and b"keep-alive" not in options),
    )


def _framing_complaint(seen: dict[bytes, bytes], http10: bool) -> ApiError | None:
    host, length = seen.get(b"host"), seen.get(b"content-length")
    coding, expect = seen.get(b"transfer-encoding"), seen.get(b"expect")
    if host is None and not http10:
        return bad("A Host header is required.")
    if host is not None and not _HOST.fullmatch(host):
        return bad("The Host header is not valid.")
    if length is not None and (coding is not None or not length.isdigit()):
        return bad("Content-Length is malformed or beside Transfer-Encoding.")
    if coding is not None and (coding.lower() != b"chunked" or http10):
        return bad("Transfer-Encoding must be 'chunked'.")
    if expect is not None and expect.lower() != b"100-continue":
        return ApiError(417, "Only 'Expect: 100-continue' is understood.", "malformed_http")
    return None


def path_of(url: bytes) -> bytes | None:
    """Path of a request target in origin or absolute form; None for any other form. The query is not used."""
    if not url.startswith(b"/"):
        scheme, sep, rest = url.partition(b"://")
        if not sep or scheme.lower() not in (b"http", b"https"):
            return None
        url = b"/" + rest.partition(b"/")[2]
    return url.partition(b"?")[0]


def model_id(path: bytes, prefix: bytes) -> str | None:
    """The id in `/v1/models/{id}`, which may hold slashes; None where it is not UTF-8."""
    try:
        return urllib.parse.unquote_to_bytes(path[len(prefix) :]).decode()
    except UnicodeDecodeError:
        return None


def passed_on(headers: Headers) -> Headers:
    """Headers that go to the engine: all but hop-by-hop ones, those that `Connection` names, and internal ones."""
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            named |= frozenset(option.strip() for option in value.lower().split(b","))
    return [
        (name, value)
        for name, value in headers
        if name not in _HOP_BY_HOP and name not in named and not name.startswith(_INTERNAL)
    ]
