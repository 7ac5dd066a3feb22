"""The node agent's rules for any input."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shoal_local.agent import expansion, projection
from shoal_local.agent.addresses import PodAddresses
from shoal_local.agent.backoff import Backoff, BackoffPolicy
from shoal_local.agent.kubelet import tail_offset
from shoal_local.agent.probe_rules import ProbeSpec, Verdict
from shoal_local.agent.projection import File

_NAMES = st.text("abcxyz", min_size=1, max_size=4)


@given(st.lists(st.floats(0, 1000), max_size=30), st.floats(0.1, 20), st.floats(20, 300))
def test_backoff_stays_within_its_bounds_and_never_shrinks_in_a_row(runs: list[float], base: float, top: float) -> None:
    policy, state, before = BackoffPolicy(base, top), Backoff(), 0.0
    for ran_s in runs:
        state = state.after_run(policy, ran_s)
        delay = state.delay_s(policy)
        assert 0 <= delay <= top
        assert delay >= before or ran_s >= policy.reset_after_s
        before = delay


@given(st.text(), st.dictionaries(_NAMES, st.text(max_size=5), max_size=4))
def test_expansion_leaves_text_without_dollars_alone(text: str, variables: dict[str, str]) -> None:
    plain = text.replace("$", "")
    assert expansion.expand(plain, variables) == plain
    assert expansion.expand(text.replace("$", "$$"), variables) == text


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5), st.integers(1, 5))
def test_verdict_changes_only_after_its_threshold(results: list[bool], success: int, failure: int) -> None:
    spec = ProbeSpec("readiness", "exec", {}, 0, 1, 1, success, failure, None)
    verdict = Verdict()
    for index, result in enumerate(results):
        after = verdict.after(spec, result)
        needed = success if result else failure
        if after.passed is not verdict.passed:
            assert results[max(0, index - needed + 1) : index + 1] == [result] * needed
            assert after.passed is result
        verdict = after


@given(st.binary(max_size=300).map(lambda raw: raw.replace(b"\x00", b"\n")), st.integers(0, 12))
def test_tail_equals_the_naive_one(content: bytes, lines: int) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        offset = tail_offset(Path(file.name), lines)
    pieces = content.split(b"\n")
    kept = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    assert content[offset:] == b"".join(kept[len(kept) - lines :] if lines < len(kept) else kept) or lines == 0
    if lines == 0:
        assert offset == len(content)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "d/e", "d/f"]), st.binary(max_size=4)), max_size=6))
def test_volume_always_shows_exactly_the_last_payload(payloads: list[dict[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in payloads:
            projection.write_payload(folder, {path: File(content, 0o644) for path, content in each.items()})
            tops = {path.split("/")[0] for path in each}
            assert {entry.name for entry in folder.iterdir() if not entry.name.startswith("..")} == tops
            assert {path: (folder / path).read_bytes() for path in each} == each


@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=60))
def test_addresses_in_use_are_always_different(steps: list[int | None]) -> None:
    """None takes an address, a number gives one back."""
    pool, held = PodAddresses(70), list[str]()
    for step in steps:
        if step is None:
            held.append(pool.take())
        elif held:
            pool.release(held.pop(step % len(held)))
        assert len(set(held)) == len(held)
