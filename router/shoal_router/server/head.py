"""Strict checks on a request's head, beyond those of llhttp, and what the router needs to know of it.

Two parsers that read one head differently are how requests get smuggled: what passes has one meaning only. llhttp
in its strict mode refuses bare CR and LF, NUL, folded lines and space before a colon (each has a wire test, should a
version ever forgive it); how the message is framed is checked here. Pure; called by server.connection.
"""

import functools
import re
import urllib.parse
from typing import Final

from shoal_router.errors import ApiError

Headers = list[tuple[bytes, bytes]]

_HOST: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]+")
_UPGRADE: Final = re.compile(rb"(?i)\r\nupgrade(?=:)")
_FRAMING: Final = 1
_CONTENT: Final = 2
_DROPPED: Final = 3
_ROLES: Final[dict[bytes, int]] = {
    b"host": _FRAMING,
    b"content-length": _FRAMING,
    b"transfer-encoding": _FRAMING,
    b"expect": _FRAMING,
    b"connection": _FRAMING,
    b"content-type": _CONTENT,
    b"content-encoding": _CONTENT,
    b"keep-alive": _DROPPED,
    b"proxy-authenticate": _DROPPED,
    b"proxy-authorization": _DROPPED,
    b"proxy-connection": _DROPPED,
    b"te": _DROPPED,
    b"trailer": _DROPPED,
    b"upgrade": _DROPPED,
    b"accept-encoding": _DROPPED,
    b"http2-settings": _DROPPED,
}
"""What is not passed on as it is: hop-by-hop headers, those of the body, and `accept-encoding`, since the router reads
what engines answer."""
_INTERNAL: Final = (b"x-shoal-", b"x-override-")
"""Our own, and SGLang's header overrides, which could pin a request's id or place behind the router's back."""


class Head:
    """What a head says: about the message it opens, to the router, and to the engine."""

    __slots__ = ("chunked", "close", "content", "expects_continue", "internal", "length", "passed")

    def __init__(self) -> None:
        self.length: int | None = None
        """Content-Length; None: no body, or a chunked one."""
        self.chunked = False
        self.expects_continue = False
        self.close = False
        """The client asked to close after the answer."""
        self.content: Headers = []
        """Content-Type and Content-Encoding."""
        self.internal: Headers = []
        """For the router alone."""
        self.passed: Headers = []
        """For the engine: all but hop-by-hop ones, those that `Connection` names, and internal ones."""


NO_HEAD: Final = Head()
"""Before one was read."""


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


def without_upgrade(head: bytes) -> bytes:
    """The head with an Upgrade header made unknown: an upgrade is never made, and the request stands without it."""
    # `find`, since `in` first tries to take the pattern for a number and makes an exception of that.
    if head.find(b"pgrade") < 0 and head.find(b"PGRADE") < 0:
        return head
    return _UPGRADE.sub(rb"\r\nx-ignored-upgrade", head)


def read(headers: Headers, http10: bool) -> Head | ApiError:
    """All headers in one pass; those that frame the message are checked. Names are lower case."""
    found = Head()
    seen: dict[bytes, bytes] = {}
    for header in headers:
        name, value = header
        role = _ROLES.get(name, 0)
        if role == 0:
            if name.startswith(_INTERNAL):
                found.internal.append(header)
            else:
                found.passed.append(header)
        elif role == _FRAMING:
            if name not in seen:
                seen[name] = value
            elif name == b"connection":
                seen[name] += b"," + value
            else:
                return bad(f"The header {name.decode()} is repeated.")
        elif role == _CONTENT:
            found.content.append(header)
    complaint = _framing_complaint(seen, http10)
    if complaint is not None:
        return complaint
    length = seen.get(b"content-length")
    found.length = int(length) if length is not None else None
    found.chunked = b"transfer-encoding" in seen
    found.expects_continue = b"expect" in seen
    _connection(found, seen.get(b"connection"), http10)
    return found


def _connection(found: Head, value: bytes | None, http10: bool) -> None:
    """What `Connection` says: whether to close, and which headers are for this hop only."""
    found.close = http10
    if value is None:
        return
    options = [option.strip() for option in value.lower().split(b",")]
    found.close = b"close" in options or (http10 and b"keep-alive" not in options)
    named = [option for option in options if option not in (b"close", b"keep-alive", b"")]
    if named:
        found.passed = [header for header in found.passed if header[0] not in named]


@functools.lru_cache(64)  # nearly every request names one of a few
def _is_host(host: bytes) -> bool:
    return _HOST.fullmatch(host) is not None


def _framing_complaint(seen: dict[bytes, bytes], http10: bool) -> ApiError | None:
    host, length = seen.get(b"host"), seen.get(b"content-length")
    coding, expect = seen.get(b"transfer-encoding"), seen.get(b"expect")
    if host is None and not http10:
        return bad("A Host header is required.")
    if host is not None and not _is_host(host):
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
