"""Raw HTTP/1.1 over a socket, for tests that must control or see every byte."""

import json
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

DEADLINE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    closed: bool
    """The server closed its side after it."""

    def json(self) -> Any:
        return json.loads(self.body)


def connect(host: str, port: int, deadline_s: float = DEADLINE_S, receive_bytes: int | None = None) -> socket.socket:
    """`receive_bytes` bounds what the kernel takes for a client that does not read."""
    sock = socket.socket()
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.settimeout(deadline_s)
    try:
        sock.connect((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in ("Host: x", "Content-Type: application/json", *headers))
    return f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def exchange(host: str, port: int, data: bytes, wait_close: bool = True) -> Answer:
    """Send bytes on a connection of its own, read one answer, and whether the connection is closed after it."""
    with connect(host, port) as sock:
        sock.sendall(data)
        return read_answer(sock, wait_close)


def read_answer(sock: socket.socket, wait_close: bool = True, buffer: bytes = b"") -> Answer:
    """One answer; chunked bodies are joined. `wait_close` waits half a second for the server to close."""
    while b"\r\n\r\n" not in buffer:
        buffer += _more(sock)
    head, _, rest = buffer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split(" ")[1])
    if status == 100:
        return Answer(status, headers, rest, False)
    if headers.get("transfer-encoding") == "chunked":
        body = _chunked(sock, rest)
    else:
        while len(rest) < int(headers.get("content-length", "0")):
            rest += _more(sock)
        body = rest
    return Answer(status, headers, body, wait_close and closed_within(sock, 0.5))


def closed_within(sock: socket.socket, seconds: float) -> bool:
    """True if the peer closes in time, reading away what comes before."""
    end = time.monotonic() + seconds
    before = sock.gettimeout()
    try:
        while (left_s := end - time.monotonic()) > 0:
            sock.settimeout(left_s)
            try:
                if not sock.recv(65536):
                    return True
            except TimeoutError:
                return False
            except ConnectionError:
                return True
        return False
    finally:
        sock.settimeout(before)


def _chunked(sock: socket.socket, buffer: bytes) -> bytes:
    body: list[bytes] = []
    data = bytearray(buffer)
    at = 0
    while True:
        while (end := data.find(b"\r\n", at)) < 0:
            data += _more(sock)
        length = int(bytes(data[at:end]), 16)
        at = end + 2
        while len(data) < at + length + 2:
            data += _more(sock)
        body.append(bytes(data[at : at + length]))
        at += length + 2
        if not length:
            return b"".join(body)


def _more(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 18)
    if not data:
        raise ConnectionError("closed before the answer was complete")
    return data
