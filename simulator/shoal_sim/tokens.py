"""The simulated model: what it answers is a pure function of the prompt's bytes.

One token is four bytes. A prompt is cut into pieces of four UTF-8 bytes (the last may be shorter), and the id of a
token is those bytes read as a little-endian unsigned number, so text and its ids are the same sequence of bytes and
share cache pages whichever way they are sent.

Every generated token is four ASCII characters, a space and a made-up syllable (" tak rem lop"). Token number i of a
request is a hash of everything before it: the prompt's bytes and the i tokens already generated. Therefore

* a retry of the request on any other replica gives the same text,
* a request that repeats the prompt and carries the text received so far is continued with the very next token,
* a lost, repeated or swapped token in a stream shows when it is compared with `expected_text`.

`choice` distinguishes the n choices of one request. Sampling parameters (temperature, seed, penalties) do not change
the text. Without a limit a request ends where the hash says so: on average after NATURAL_TOKENS_MEAN tokens.
Used by the scheduler to generate, and by tests and the trace replay to check.
"""

import sys
from array import array
from typing import Final

import xxhash

TOKEN_BYTES: Final = 4
NATURAL_TOKENS_MEAN: Final = 128

# memoryview.cast and array use the machine's byte order and sizes; every platform we run on is this one.
assert sys.byteorder == "little"
assert array("I").itemsize == TOKEN_BYTES

_CONSONANTS = "bcdfghjklmnprstvwxyz"
_VOWELS = "aeiou"
_SYLLABLES: Final = tuple(f" {a}{b}{c}" for a in _CONSONANTS for b in _VOWELS for c in _CONSONANTS)


class Generator:
    """The token sequence of one choice of one request; `next_token` advances it."""

    __slots__ = ("_state", "natural_end")

    def __init__(self, prompt: bytes, choice: int = 0) -> None:
        self._state = xxhash.xxh3_64(prompt, seed=choice)
        self.natural_end = False

    def next_token(self) -> str:
        """The next token's text; `natural_end` then says whether the model would stop after it."""
        digest: int = self._state.intdigest()
        text = _SYLLABLES[digest % len(_SYLLABLES)]
        self._state.update(text.encode())
        self.natural_end = (digest >> 32) % NATURAL_TOKENS_MEAN == 0
        return text

    def take(self, count: int) -> list[str]:
        """The next so many tokens."""
        return [self.next_token() for _ in range(count)]


def expected_tokens(prompt: bytes, max_tokens: int | None = None, choice: int = 0) -> list[str]:
    """All tokens of a request: exactly `max_tokens`, or up to the natural end where it is None."""
    generator = Generator(prompt, choice)
    tokens: list[str] = []
    while max_tokens is None or len(tokens) < max_tokens:
        tokens.append(generator.next_token())
        if max_tokens is None and generator.natural_end:
            break
    return tokens


def expected_text(prompt: bytes, max_tokens: int | None = None, choice: int = 0) -> str:
    """The whole answer to `prompt` (for a chat: `chat_template.render` of its body), as one string."""
    return "".join(expected_tokens(prompt, max_tokens, choice))


def token_count(byte_count: int) -> int:
    return -(-byte_count // TOKEN_BYTES)


def token_id(text: str) -> int:
    return int.from_bytes(text.encode(), "little")


def ids_of(data: bytes) -> list[int]:
    """Token ids of a byte string; a short last token is padded with zero bytes."""
    padded = data + bytes(-len(data) % TOKEN_BYTES)
    return list(memoryview(padded).cast("I"))


def bytes_of(ids: list[int]) -> bytes:
    """The bytes that ids stand for. Raises VocabularyError for an id that no four bytes have."""
    try:
        return array("I", ids).tobytes()
    except (OverflowError, TypeError) as error:
        raise VocabularyError(str(error)) from error


def text_of(ids: list[int]) -> str:
    return bytes_of(ids).rstrip(b"\0").decode("utf-8", "replace")


class VocabularyError(ValueError):
    """A token id outside the vocabulary."""
