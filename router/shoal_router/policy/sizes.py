"""What requests of one model weigh: bytes per token, tokens of an answer, life of a request. Learned from usage.

Called by policy.pool; one instance a service.
"""

from shoal_router import model
from shoal_router.metrics import rate

_BYTES_PER_TOKEN = 4.0
_MEMORY_TOKENS = 2_000_000.0
_OUTPUT_TOKENS = 256.0
_REPLY_SHARE = 0.5
_REPLY_TOKENS_MIN = 16
_BPT_BOUNDS = (0.25, 64.0)


class Sizes:
    """`tokens_per_byte` weighs every prompt by its tokens, and forgets after two million of them."""

    __slots__ = ("_bytes", "_tokens", "life_s", "output_tokens", "reply_share")

    def __init__(self) -> None:
        # A prior of 4 bytes a token that a few thousand observed tokens outweigh.
        self._tokens = 1000.0
        self._bytes = 1000.0 * _BYTES_PER_TOKEN
        self.output_tokens = rate.Mean(128)
        self.life_s = rate.Mean(64)
        self.reply_share = rate.Mean(64)
        """Share of a reply that the session's next turn finds in the cache; templates may leave thoughts out."""

    @property
    def bytes_per_token(self) -> float:
        return self._bytes / self._tokens

    def prompt_tokens(self, prompt: model.Prompt) -> int:
        """Tokens of a prompt, batch included; at least one."""
        if prompt.tokens is not None and not prompt.rest_bytes:
            return max(1, prompt.tokens)
        if prompt.tokens is not None:
            return max(1, prompt.tokens + prompt.rest_bytes // 4)
        return max(1, int((prompt.data_bytes + prompt.rest_bytes) * self._tokens / self._bytes))

    def output(self, request: model.Request) -> float:
        """Tokens that the answer is expected to have."""
        mean = self.output_tokens.value_or(_OUTPUT_TOKENS)
        return mean if request.output_max is None else min(mean, request.output_max)

    def reply(self, tokens: int) -> int:
        """Tokens of a reply of so many that will be found in the cache."""
        return int(tokens * self.reply_share.value_or(_REPLY_SHARE))

    def learn_prompt(self, prompt: model.Prompt, tokens: int) -> None:
        """The engine counted so many tokens in this prompt."""
        if prompt.tokens is not None or prompt.rest_bytes or tokens <= 0 or not prompt.data_bytes:
            return
        low, high = _BPT_BOUNDS
        size = min(max(prompt.data_bytes, tokens * low), tokens * high)
        self._tokens += tokens
        self._bytes += size
        if self._tokens > _MEMORY_TOKENS:
            keep = _MEMORY_TOKENS / self._tokens
            self._tokens *= keep
            self._bytes *= keep

    def learn_reply(self, before_tokens: int, reply_tokens: int, cached_tokens: int) -> None:
        """A next turn found so much cached after a turn of so many prompt and reply tokens."""
        if reply_tokens >= _REPLY_TOKENS_MIN:
            self.reply_share.add(min(1.0, max(0.0, (cached_tokens - before_tokens) / reply_tokens)))
