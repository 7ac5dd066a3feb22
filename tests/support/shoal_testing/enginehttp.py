"""A blocking HTTP/1.1 client on a plain socket: keeps the order of headers and the boundaries of chunks."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 20.0


@dataclass(slots=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = True
    """False where the connection ended inside the body."""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def events(self) -> list[str]:
        """SSE events, each with its blank line."""
        return [f"{event}\n\n" for event in self.body.decode().split("\n\n") if event]


def request(
    host: str,
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Sends one request on a connection of its own. A str or bytes body goes out as it is, without a content type."""
    with exchange(host, port, method, path, body, headers, timeout_s) as (answer, stream):
        _read_body(answer, stream, method)
        return answer


@contextlib.contextmanager
def exchange(
    host: str,
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[tuple[Answer, Any]]:
    """Sends a request and reads the head of the answer; gives it with the file to read on from. Closes at the end."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", "Connection: close"]
    data = b""
    if body is not None:
        raw = isinstance(body, str | bytes)
        data = body.encode() if isinstance(body, str) else body if raw else json.dumps(body).encode()
        lines.append(f"Content-Length: {len(data)}")
        if not raw and not any(name.lower() == "content-type" for name in headers or {}):
            lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        with connection.makefile("rb") as stream:
            status_line = stream.readline()
            if not status_line:
                raise ConnectionError("closed before the answer")
            answer = Answer(int(status_line.split()[1]), [])
            while (line := stream.readline().strip()) != b"":
                name, _, value = line.decode("latin-1").partition(": ")
                answer.headers.append((name, value))
            yield answer, stream


def read_chunk(stream: Any) -> bytes | None:
    """The next chunk; empty at the end of the body, None where the connection ended before it."""
    size_line = stream.readline()
    if not size_line.endswith(b"\r\n"):
        return None
    size = int(size_line, 16)
    data: bytes = stream.read(size + 2)
    return data[:-2] if len(data) == size + 2 else None


def _read_body(answer: Answer, stream: Any, method: str) -> None:
    if method == "HEAD":
        return
    if (answer.header("transfer-encoding") or "").lower() != "chunked":
        length = int(answer.header("content-length") or 0)
        answer.body = stream.read(length)
        answer.complete = len(answer.body) == length
        return
    while True:
        chunk = read_chunk(stream)
        if not chunk:
            answer.complete = chunk is not None
            break
        answer.chunks.append(chunk)
    answer.body = b"".join(answer.chunks)
