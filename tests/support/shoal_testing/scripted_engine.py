"""An engine whose every byte is the test's: for what a real engine does only when it breaks.

    with scripted_engine(lambda call: call.events(b"...", done=True)) as engine, router({"a": engine.url}) as one: ...

Probes, `/server_info` and `/abort_request` are answered as a healthy engine does; generating routes by the script,
which runs in a thread of its own per connection and may block, cut or reset. What arrived is kept in `requests`.
"""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

READ_DEADLINE_S: Final = 20.0
GENERATING: Final = ("/v1/chat/completions", "/v1/completions", "/generate", "/v1/tokenize", "/v1/detokenize")
INFO: Final[dict[str, Any]] = {
    "status": "ready",
    "version": "0.5.23",
    "max_total_num_tokens": 100_000,
    "max_running_requests": 64,
    "context_length": 8192,
    "vocab_size": 1000,
    "page_size": 64,
    "enable_cache_report": True,
    "random_seed": 1,
}
DONE: Final = b"data: [DONE]\n\n"


def chat_event(text: str) -> bytes:
    """One content event of a chat stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


def usage_event(prompt: int, completion: int, cached: int) -> bytes:
    usage = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return b"data: " + json.dumps({"choices": [], "usage": usage}, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    head: bytes
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class GoneError(Exception):
    """The router closed the connection."""


@dataclass(slots=True)
class Call:
    """One request on a connection, and the means to answer it."""

    request: Request
    number: int
    """Counts generating requests of this engine from 0."""
    sock: socket.socket
    keep: bool = True

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise GoneError from error

    def answer(self, status: int, body: bytes, *headers: str) -> None:
        lines = "".join(f"{line}\r\n" for line in ("content-type: application/json", *headers))
        self.send(f"HTTP/1.1 {status} Scripted\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)

    def start_events(self) -> None:
        self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end_chunks(self) -> None:
        self.send(b"0\r\n\r\n")

    def events(self, *events: bytes, done: bool = True) -> None:
        """A whole stream, each event a chunk."""
        self.start_events()
        for event in events:
            self.chunk(event)
        if done:
            self.chunk(DONE)
        self.end_chunks()

    def close(self) -> None:
        """FIN."""
        self.keep = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """RST."""
        self.keep = False
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_gone(self) -> None:
        """Until the router closes; raises TimeoutError."""
        self.keep = False
        with contextlib.suppress(ConnectionError):
            while self.sock.recv(65536):
                pass


Script = Callable[[Call], None]


class ScriptedEngine:
    """The server: one thread accepts, one serves each connection."""

    def __init__(self, script: Script, info: dict[str, Any]) -> None:
        self.script = script
        self.healthy = True
        """Probes say 200; else 503."""
        self.requests: list[Request] = []
        """Generating ones."""
        self.aborted: list[str] = []
        """Ids given to /abort_request."""
        self.connections = 0
        self.info = {**INFO, **info}
        """Answer of `/server_info`."""
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        # Accepted sockets inherit it: a test that counts what is taken must not count what the kernel holds.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                sock.settimeout(READ_DEADLINE_S)
                self._sockets.append(sock)
                self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        buffer = b""
        with contextlib.suppress(GoneError, OSError), sock:
            while True:
                request, buffer = _read(sock, buffer)
                if not self._answer(sock, request):
                    return

    def _answer(self, sock: socket.socket, request: Request) -> bool:
        with self._lock:
            if request.path in GENERATING:
                self.requests.append(request)
            call = Call(request, len(self.requests) - 1, sock)
        if request.path in GENERATING:
            self.script(call)
        elif request.path == "/server_info":
            call.answer(200, json.dumps(self.info).encode())
        elif request.path == "/abort_request":
            self.aborted.append(request.json().get("rid", ""))
            call.answer(200, b"")
        else:
            call.answer(200 if self.healthy else 503, b"")
        return call.keep

    def close_listener(self) -> None:
        """New connections are refused from now on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def stop(self) -> None:
        self.close_listener()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)


@contextlib.contextmanager
def scripted_engine(script: Script, info: dict[str, Any] | None = None) -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine(script, info or {})
    try:
        yield engine
    finally:
        engine.stop()


def _read(sock: socket.socket, buffer: bytes) -> tuple[Request, bytes]:
    while b"\r\n\r\n" not in buffer:
        buffer += _receive(sock)
    head, _, buffer = buffer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    while len(buffer) < length:
        buffer += _receive(sock)
    method, path, _ = first.split(" ")
    return Request(method, path, head, headers, buffer[:length]), buffer[length:]


def _receive(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 20)
    if not data:
        raise GoneError
    return data
