"""The load: sessions with short turns, and every few seconds a long prompt that no cache knows. Pure.

A seed gives the same contents and the same cold arrivals for every router; a session asks its next turn when it has
the last answer and has thought, so routers that answer later are asked less. The answers are not put into the next
turn, made-up ones of the same length are: what is sent does not depend on what a model says. Contents are token ids
(`ids`, for /generate), or chat messages (`chat`), which is what coding agents send. Called by `play`.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["ids", "chat"]

PATHS: Final[dict[Kind, str]] = {"ids": "/generate", "chat": "/v1/chat/completions"}
SESSION_HEADER: Final = "x-session-id"
ID_MIN, ID_MAX = 3, 31_998
"""Plain tokens of every vocabulary from 32,000 on."""
START_SPREAD_S: Final = 1.2
MARK_BYTES: Final = 16
"""Four ids of four bytes: random ones differ."""
ARRIVALS_SEED, PAUSES_SEED = 6, 100
"""Seed 1 has the times of the measurement on a real engine that slices were designed after."""
_EVERY_LEAST, _EVERY_MOST = 0.6, 1.4
_MESSAGE_WORDS: Final = 400
_NUMBERED_SHARE: Final = 0.2
_SYSTEM: Final = (
    "You are a coding agent. Read the files, change what is asked for, run the tests, and say what you did."
)
_TEXT: Final = (
    "add argument array assert async await base branch break buffer build bytes cache call case check class client "
    "close commit config count create data debug default delete diff edit else empty error event except false field "
    "file filter find first fix flag float folder for format from function get graph handler hash header if import "
    "index input insert int item join key lambda last length level limit line list load lock log loop main map match "
    "merge message method mode module name new next node none not number object open option output parse pass patch "
    "path pattern port print process push query queue raise range read record reference remove render replace request "
    "result return route row run schema search select self send server session set size slice sort source split start "
    "state step stop store stream string struct table task test text thread time token tree true try tuple type "
    "update url user value view wait while with word worker write yield"
)
_WORDS: Final = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class Load:
    """Sizes are tokens."""

    kind: Kind = "ids"
    sessions: int = 24
    context_tokens: int = 8192
    turn_tokens: int = 256
    out_tokens: int = 96
    think_min_s: float = 0.5
    think_max_s: float = 1.5
    cold_tokens: int = 65_536
    cold_out_tokens: int = 64
    cold_every_s: float = 5.5
    """Times 0.6 to 1.4."""
    lead_in_s: float = 4.0
    """Turns without cold prompts before the measured time: the first cold prompt meets a replica at work."""
    measured_s: float = 32.0
    chars_per_token: float = 4.0
    """Of the engine's tokenizer and our words: chats are cut to size by it."""


class Conversation:
    """What one session, or one cold prompt, sends: `body` is its next request with all that was said so far."""

    def __init__(self, load: Load, model: str, rng: random.Random) -> None:
        self._load, self._model, self._rng = load, model, rng
        self._parts: list[str] = []
        """Of JSON: runs of ids, or messages. Joined anew for every request, never parsed again."""

    def say(self, tokens: int) -> None:
        """Adds a user's words."""
        if self._load.kind == "ids":
            self._parts.append(",".join(map(str, self._ids(tokens))))
            return
        if not self._parts:
            self._parts.append(_message("system", _SYSTEM))
        chars = round(tokens * self._load.chars_per_token)
        messages = list(_pieces(self._rng, chars))
        # A long text is a long conversation: users and assistants in turns, the user last.
        for place, text in enumerate(messages, start=1):
            last = place == len(messages)
            self._parts.append(_message("user" if last or (len(messages) - place) % 2 == 0 else "assistant", text))

    def answered(self, tokens: int) -> None:
        """Adds a made-up answer of that length."""
        if self._load.kind == "ids":
            self._parts.append(",".join(map(str, self._ids(tokens))))
        else:
            text = "".join(_pieces(self._rng, round(tokens * self._load.chars_per_token)))
            self._parts.append(_message("assistant", text))

    def body(self, max_tokens: int) -> bytes:
        said = ",".join(self._parts)
        if self._load.kind == "ids":
            sampling = json.dumps({"temperature": 0, "max_new_tokens": max_tokens, "ignore_eos": True})
            return f'{{"input_ids":[{said}],"stream":true,"sampling_params":{sampling}}}'.encode()
        asked = {"model": self._model, "stream": True, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        more = json.dumps({**asked, "stream_options": {"include_usage": True}})
        return f'{more[:-1]},"messages":[{said}]}}'.encode()

    def _ids(self, count: int) -> list[int]:
        return self._rng.choices(range(ID_MIN, ID_MAX + 1), k=count)


def session(load: Load, model: str, seed: int, number: int) -> Conversation:
    """With its context; a turn is `say`, `body`, `answered`."""
    made = Conversation(load, model, random.Random(f"{seed}/session/{number}"))
    made.say(load.context_tokens)
    return made


def cold(load: Load, model: str, seed: int, number: int) -> Conversation:
    made = Conversation(load, model, random.Random(f"{seed}/cold/{number}"))
    made.say(load.cold_tokens)
    return made


def cold_times(load: Load, seed: int) -> list[float]:
    """When cold prompts are sent, in seconds from the start of the measured time; the first at once."""
    rng = random.Random(ARRIVALS_SEED + seed)
    times = [0.0]
    while True:
        after_s = times[-1] + load.cold_every_s * rng.uniform(_EVERY_LEAST, _EVERY_MOST)
        if after_s >= load.measured_s:
            return times
        times.append(after_s)


def pauses(load: Load, seed: int, number: int) -> Iterator[float]:
    """Of one session: before its first turn, then its thinking times, without end."""
    rng = random.Random(PAUSES_SEED * seed + number)
    yield rng.uniform(0.0, START_SPREAD_S)
    while True:
        yield rng.uniform(load.think_min_s, load.think_max_s)


def sample_messages(chars: int) -> Sequence[dict[str, str]]:
    """A chat of our words, to ask an engine's tokenizer how many tokens so many characters are."""
    rng = random.Random("sample")
    return [{"role": "user", "content": "".join(_pieces(rng, chars))}]


def mark(ids: Sequence[int]) -> str:
    """By which a prompt is known in the trace of a simulated engine, where an id is four bytes."""
    return b"".join(one.to_bytes(4, "little") for one in ids[: MARK_BYTES // 4]).hex()


def _pieces(rng: random.Random, chars: int) -> Iterator[str]:
    """Text of exactly so many characters, in messages of a few hundred words."""
    left = chars
    while left > 0:
        words = rng.choices(_WORDS, k=_MESSAGE_WORDS)
        numbered = (one + str(rng.randrange(1000)) if rng.random() < _NUMBERED_SHARE else one for one in words)
        text = " ".join(numbered)[:left]
        left -= len(text)
        yield text


def _message(role: str, text: str) -> str:
    return json.dumps({"role": role, "content": text})
