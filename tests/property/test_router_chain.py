"""Chain hashes: equal exactly as far as the bytes are equal."""

from hypothesis import example, given
from hypothesis import strategies as st

from shoal_router.index import chain

_BYTES = st.binary(min_size=0, max_size=6000)


def _common(one: bytes, other: bytes) -> int:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


@given(prefix=_BYTES, one=_BYTES, other=_BYTES)
@example(prefix=b"a" * 256, one=b"", other=b"b")
def test_hashes_agree_exactly_as_far_as_whole_chunks_agree(prefix: bytes, one: bytes, other: bytes) -> None:
    left, right = chain.chain(prefix + one), chain.chain(prefix + other)
    want = chain.depth(_common(prefix + one, prefix + other))
    agree = [a == b for a, b in zip(left, right, strict=False)]
    assert agree[:want] == [True] * want
    assert not any(agree[want:])


@given(data=_BYTES, more=_BYTES)
def test_a_prefix_has_a_prefix_of_the_hashes(data: bytes, more: bytes) -> None:
    hashes = chain.chain(data)
    assert chain.chain(data + more)[: len(hashes)] == hashes
    assert len(hashes) == chain.depth(len(data))
    assert chain.length_bytes(len(hashes)) <= len(data)


@given(data=st.binary(min_size=256, max_size=2000), salt=st.integers(1, 2**64 - 1))
def test_salted_prompts_share_nothing(data: bytes, salt: int) -> None:
    assert not set(chain.chain(data)) & set(chain.chain(data, salt))


def test_boundaries_rise_and_grow_coarser() -> None:
    steps = [end - start for start, end in zip((0, *chain.BOUNDARIES), chain.BOUNDARIES, strict=False)]
    assert steps == sorted(steps)
    assert chain.depth(400_000) <= 250
    assert all(step <= max(256, end / 4) for step, end in zip(steps, chain.BOUNDARIES, strict=True))
