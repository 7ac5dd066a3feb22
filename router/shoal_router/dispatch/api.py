"""The engine APIs that the router relays, and how each differs. Read by checks, exchange and the server.

Constants of a plain class, not members of an enum: a request asks for their attributes a dozen times, and those of an
enum are descriptors that stay interpreted where the rest is compiled.
"""

from typing import Final

from shoal_router.errors import Shape
from shoal_router.index import request


class Api:
    """One relayed route. Compared by identity."""

    __slots__ = ("path", "prompt", "shape")

    def __init__(self, path: bytes, prompt: request.Api | None) -> None:
        self.path = path
        """The same for clients and engines."""
        self.prompt = prompt
        """How its prompt is read; None where it takes no place in the engine's batch and only uses its tokenizer."""
        self.shape: Shape = "sglang" if path == b"/generate" else "openai"
        """Of its errors."""

    @property
    def generates(self) -> bool:
        return self.prompt is not None


CHAT: Final = Api(b"/v1/chat/completions", request.Api.CHAT)
COMPLETIONS: Final = Api(b"/v1/completions", request.Api.COMPLETION)
GENERATE: Final = Api(b"/generate", request.Api.GENERATE)
TOKENIZE: Final = Api(b"/v1/tokenize", None)
DETOKENIZE: Final = Api(b"/v1/detokenize", None)
ALL: Final = (CHAT, COMPLETIONS, GENERATE, TOKENIZE, DETOKENIZE)
BY_PATH: Final[dict[bytes, Api]] = {api.path: api for api in ALL}
