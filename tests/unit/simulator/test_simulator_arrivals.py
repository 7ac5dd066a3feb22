"""When the scheduler sees a request: reading takes its turn, and a step under way has its successor already."""

from shoal_sim.arrivals import Arrivals
from shoal_sim.profiles import ReceptionTiming
from shoal_sim.prompt import Prompt
from shoal_sim.request import Limits, Request, Signal

TIMING = ReceptionTiming(request_s=1.0, id_s=0.125, text_token_s=0.5, latency_s=2.0)


def ask(rid: str, tokens: int = 8, choice: int = 0) -> Request:
    return Request(rid, Prompt(b"four" * tokens, 64), Limits(), Signal(), choice=choice)


def rids(requests: list[Request]) -> str:
    return "".join(request.rid for request in requests)


def test_prompts_are_read_one_after_the_other() -> None:
    arrivals = Arrivals(TIMING, overlap=True)
    assert arrivals.add(ask("a"), text=False, now_s=10.0) == 10.0 + 2.0 + 2.0
    # Waits until the first has been read, not until it was seen; text takes longer.
    assert arrivals.add(ask("b"), text=True, now_s=11.0) == 12.0 + 5.0 + 2.0
    assert arrivals.read(8, True, now_s=11.0) == 17.0 + 5.0, "tokenizing alone takes its turn too"
    assert arrivals.add(ask("c"), text=False, now_s=50.0) == 50.0 + 2.0 + 2.0


def test_further_choices_of_a_prompt_are_not_read_again() -> None:
    arrivals = Arrivals(TIMING, overlap=True)
    first_s = arrivals.add(ask("a"), text=True, now_s=0.0)
    assert arrivals.add(ask("a", choice=1), text=True, now_s=0.0) == first_s + TIMING.request_s


def test_a_faster_engine_reads_faster() -> None:
    assert Arrivals(TIMING.faster(4), overlap=True).add(ask("a"), text=False, now_s=0.0) == 1.0


def test_what_comes_during_a_step_misses_the_next() -> None:
    arrivals = Arrivals(ReceptionTiming(), overlap=True)
    arrivals.add(ask("a"), text=False, now_s=1.0)
    arrivals.add(ask("b"), text=False, now_s=1.5)
    assert rids(arrivals.due(step_began_s=1.0, now_s=2.0)) == "a"
    assert arrivals.next_s == 1.5
    assert rids(arrivals.due(step_began_s=2.0, now_s=3.0)) == "b"
    assert not arrivals


def test_without_overlap_everything_that_is_here_is_seen() -> None:
    arrivals = Arrivals(TIMING, overlap=False)
    arrivals.add(ask("a"), text=False, now_s=0.0)
    arrivals.add(ask("b"), text=False, now_s=0.0)
    assert rids(arrivals.due(step_began_s=0.0, now_s=4.0)) == "a"
    assert rids(arrivals.requests()) == "b"


def test_nothing_prepared_means_all_that_are_here() -> None:
    arrivals = Arrivals(TIMING, overlap=True)
    for rid in "abc":
        arrivals.add(ask(rid), text=False, now_s=0.0)
    assert rids(arrivals.here(now_s=6.0)) == "ab"
    assert arrivals.next_s == 8.0


def test_those_that_are_aborted_on_their_way_are_taken_out() -> None:
    arrivals = Arrivals(TIMING, overlap=True)
    for rid in "abc":
        arrivals.add(ask(rid), text=False, now_s=0.0)
    assert rids(arrivals.withdraw(lambda request: request.rid == "b")) == "b"
    assert rids(arrivals.here(now_s=100.0)) == "ac"
    assert arrivals.next_s is None
