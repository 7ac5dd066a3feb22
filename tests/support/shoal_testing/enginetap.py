"""Between a router and an engine: passes every byte on, and keeps what was asked and answered.

    with engines(1) as fleet, tap(fleet[0].host, fleet[0].port) as between, router({"a": between.url}) as one: ...

The simulated engine has no adapters: with `adapters` their names are taken out of requests and put into `extra_key`,
which is what an adapter is to an engine's cache. A connection that one side closes is closed on the other.
"""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

READ_DEADLINE_S: Final = 60.0
_LENGTH: Final = re.compile(rb"content-length: *\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the router sent it."""

    path: str
    body: bytes

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass(slots=True)
class Tap:
    url: str
    requests: list[Seen] = field(default_factory=list)
    """POSTs, in the order in which they came."""
    answers: list[bytes] = field(default_factory=list)
    """What the engine sent, as it came, of all connections."""


@contextlib.contextmanager
def tap(host: str, port: int, adapters: bool = False) -> Iterator[Tap]:
    listener = socket.create_server(("127.0.0.1", 0))
    between = Tap(f"http://127.0.0.1:{listener.getsockname()[1]}")
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        threads.append(thread)
        thread.start()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                engine = socket.create_connection((host, port))
                for sock in (client, engine):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets.extend((client, engine))
                start(_answers, engine, client, between)
                start(_questions, client, engine, between, adapters)

    start(accept)
    try:
        yield between
    finally:
        for sock in (listener, *sockets):
            _shut(sock)
        for thread in threads:
            thread.join(5)
        for sock in (listener, *sockets):
            sock.close()


def _answers(engine: socket.socket, client: socket.socket, between: Tap) -> None:
    with contextlib.suppress(OSError):
        while data := engine.recv(1 << 18):
            between.answers.append(data)
            client.sendall(data)
    _shut(client)


def _questions(client: socket.socket, engine: socket.socket, between: Tap, adapters: bool) -> None:
    buffer = b""
    with contextlib.suppress(OSError):
        while True:
            while b"\r\n\r\n" not in buffer:
                buffer += _more(client)
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            length = int(found[0].rpartition(b":")[2]) if found else 0
            while len(buffer) < length:
                buffer += _more(client)
            body, buffer = buffer[:length], buffer[length:]
            method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
            if method == "POST":
                between.requests.append(Seen(path, body))
                if adapters:
                    body = _without_adapter(body)
                    head = _LENGTH.sub(b"content-length: %d" % len(body), head)
            engine.sendall(head + b"\r\n\r\n" + body)
    _shut(engine)


def _without_adapter(body: bytes) -> bytes:
    if b":" not in body or (b'"lora_path"' not in body and b'"model"' not in body):
        return body
    doc = json.loads(body)
    base, _, named = str(doc.get("model", "")).partition(":")
    named = doc.pop("lora_path", None) or named
    if not named:
        return body
    if "model" in doc:
        doc["model"] = base
    doc["extra_key"] = f"{doc.get('extra_key') or ''}/adapter {named}"
    return json.dumps(doc).encode()


def _more(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 18)
    if not data:
        raise ConnectionError
    return data


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
