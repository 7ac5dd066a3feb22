"""The engine APIs that the router relays, and how each differs. Read by checks, exchange and the server."""

import enum
from typing import Final

from shoal_router.errors import Shape


class Api(enum.Enum):
    """One relayed route. The value is its path, the same for clients and engines."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    GENERATE = "/generate"
    TOKENIZE = "/v1/tokenize"
    DETOKENIZE = "/v1/detokenize"

    @property
    def shape(self) -> Shape:
        return "sglang" if self is Api.GENERATE else "openai"

    @property
    def generates(self) -> bool:
        """Takes a place in the engine's batch; the others only use its tokenizer."""
        return self in (Api.CHAT, Api.COMPLETIONS, Api.GENERATE)


BY_PATH: Final = {api.value.encode(): api for api in Api}
