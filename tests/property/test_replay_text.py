"""Equal hash prefixes give equal bytes of the rendered prompt, unequal ones do not; turns extend one another."""

import itertools
from array import array

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_cli.replay import bound, prompt, sse, text, trace

BLOCK = 64


def rendered(messages: bytes) -> bytes:
    """As a chat template does it: marks around every message, an opening one for the answer."""
    parts = [f"<{one['role']}>{one['content']}</>" for one in orjson.loads(messages)]
    return "".join([*parts, "<assistant>"]).encode()


@st.composite
def conversations(draw: st.DrawFn) -> list[trace.Turn]:
    """Turns that grow, shrink, branch and have loose last tokens; ids name their prefix, as in the traces."""
    names: dict[tuple[int, ...], int] = {}

    def chain(path: list[int]) -> list[int]:
        return [names.setdefault(tuple(path[: end + 1]), len(names) + 1) for end in range(len(path))]

    turns: list[trace.Turn] = []
    path: list[int] = []
    for _ in range(draw(st.integers(1, 8))):
        keep = draw(st.integers(0, len(path))) if draw(st.booleans()) else len(path)
        path = path[:keep] + draw(st.lists(st.integers(0, 2), min_size=0 if keep else 1, max_size=6))
        loose = draw(st.integers(0, BLOCK - 1))
        turns.append(
            trace.Turn(len(path) * BLOCK + loose, draw(st.integers(1, 200)), array("Q", chain(path)), think_s=0.0)
        )
    return turns


def agreed(one: trace.Turn, other: trace.Turn) -> int:
    pairs = zip(one.blocks, other.blocks, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one.blocks), len(other.blocks)))


@given(conversations(), st.integers(0, 300))
def test_equal_hash_prefixes_are_equal_prefixes_of_bytes(turns: list[trace.Turn], system_tokens: int) -> None:
    script = prompt.Script("s", BLOCK, system_tokens, turns, text.BlockText("s", BLOCK))
    made = [script.prompt(index) for index in range(len(turns))]
    words = [b"".join(one["content"].encode() for one in orjson.loads(prompt_.messages)) for prompt_ in made]
    for a, turn in enumerate(turns):
        assert len(words[a]) == turn.input_tokens * text.TOKEN_BYTES
        for b in range(a):
            common = agreed(turn, turns[b])
            size = common * BLOCK * text.TOKEN_BYTES
            assert words[a][:size] == words[b][:size]
            if common < min(len(turn.blocks), len(turns[b].blocks)):
                end = size + BLOCK * text.TOKEN_BYTES
                assert words[a][size:end] != words[b][size:end]


@given(conversations(), st.integers(0, 300))
def test_messages_agree_wherever_their_hash_ids_do(turns: list[trace.Turn], system_tokens: int) -> None:
    script = prompt.Script("s", BLOCK, system_tokens, turns, text.BlockText("s", BLOCK))
    made = [orjson.loads(script.prompt(index).messages) for index in range(len(turns))]
    for index, messages in enumerate(made):
        assert messages[-1]["role"] == "user"
        assert all(one["content"] for one in messages)
        for other in range(index):
            tokens = agreed(turns[index], turns[other]) * BLOCK
            assert within(messages, tokens) == within(made[other], tokens)


def within(messages: list[dict[str, str]], tokens: int) -> list[tuple[str, str]]:
    """Role and text of the messages that begin within the first tokens, cut at them."""
    found: list[tuple[str, str]] = []
    left = tokens * text.TOKEN_BYTES
    for one in messages:
        if left <= 0:
            break
        found.append((one["role"], one["content"][:left]))
        left -= len(one["content"])
    return found


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, BLOCK - 1)), min_size=2, max_size=8), st.integers(0, 300))
def test_growing_turns_extend_the_rendered_bytes(growth: list[tuple[int, int]], system_tokens: int) -> None:
    turns: list[trace.Turn] = []
    blocks = 0
    for more, loose in growth:
        # Two blocks at least, so that an answer and a question have room between two prompts.
        blocks += more + 1
        turns.append(trace.Turn(blocks * BLOCK + loose, 20, array("Q", range(1, blocks + 1)), think_s=0.0))
    script = prompt.Script("s", BLOCK, system_tokens, turns, text.BlockText("s", BLOCK))
    made = [rendered(script.prompt(index).messages) for index in range(len(turns))]
    for shorter, longer in itertools.pairwise(made):
        assert longer.startswith(shorter)


@given(st.lists(st.integers(0, 2**63), max_size=40), st.integers(1, 20), st.sampled_from([64, 512]))
def test_text_does_not_depend_on_what_the_cache_holds(ids: list[int], kept: int, block_tokens: int) -> None:
    small = text.BlockText("scope", block_tokens, blocks_max=kept)
    large = text.BlockText("scope", block_tokens)
    for end in range(len(ids) + 1):
        assert small.text(ids[:end]) == large.text(ids[:end])
    assert len(large.text(ids)) == len(ids) * block_tokens * text.TOKEN_BYTES
    assert large.text(ids).isascii()


def test_scopes_share_nothing() -> None:
    assert text.BlockText("a", 64).text([1]) != text.BlockText("b", 64).text([1])


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=10))
def test_bound_is_the_longest_known_prefix(prompts: list[list[int]]) -> None:
    cache = bound.InfiniteCache(BLOCK)
    names: dict[tuple[int, ...], int] = {}
    seen: set[tuple[int, ...]] = set()
    for path in prompts:
        prefixes = [tuple(path[: end + 1]) for end in range(len(path))]
        ids = [names.setdefault(prefix, len(names)) for prefix in prefixes]
        want = sum(1 for prefix in prefixes if prefix in seen)
        assert cache.insert(ids, len(ids) * BLOCK) == want * BLOCK
        seen.update(prefixes)


EVENTS = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=30).map(lambda data: b"data: " + data.replace(b"\n", b"").replace(b"\r", b"")),
        st.just(b"event: error\ndata: {}"),
        st.just(b": comment"),
        st.just(b"data: a\ndata: b"),
    ),
    max_size=10,
)


@settings(max_examples=200)
@given(EVENTS, st.sampled_from([b"\n", b"\r\n"]), st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_events_do_not_depend_on_chunk_borders(blocks: list[bytes], end: bytes, sizes: list[int]) -> None:
    stream = b"".join(block.replace(b"\n", end) + end + end for block in blocks)
    want = sse.Parser().feed(stream)
    parser = sse.Parser()
    got: list[sse.Event] = []
    place = turn = 0
    while place < len(stream):
        size = sizes[turn % len(sizes)]
        got += parser.feed(stream[place : place + size])
        place += size
        turn += 1
    assert got == want
    assert not parser.pending
    assert len(got) == sum(1 for block in blocks if b"data:" in block)
