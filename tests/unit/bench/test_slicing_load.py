"""The load of bench-slicing: the same for every router, of the sizes that it says."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from shoal_bench.slicing import load
from shoal_bench.slicing.load import Conversation, Load

IDS = Load(sessions=2, context_tokens=512, turn_tokens=64, out_tokens=16, cold_tokens=2048)
CHAT = replace(IDS, kind="chat", context_tokens=4096, chars_per_token=4.0)


def sent(conversation: Conversation, max_tokens: int = 5) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(conversation.body(max_tokens))
    return found


def test_ids_grow_by_turn_and_answer_and_keep_their_prefix() -> None:
    one = load.session(IDS, "m", 1, 0)
    context = sent(one)["input_ids"]
    one.say(64)
    first = sent(one)["input_ids"]
    one.answered(16)
    one.say(64)
    second = sent(one)["input_ids"]

    assert (len(context), len(first), len(second)) == (512, 576, 656)
    assert first[:512] == context
    assert second[:576] == first
    assert all(load.ID_MIN <= one <= load.ID_MAX for one in second)


def test_ids_are_streamed_and_of_the_length_asked_for() -> None:
    body = sent(load.cold(IDS, "m", 1, 0), 7)

    assert body["stream"] is True
    assert body["sampling_params"] == {"temperature": 0, "max_new_tokens": 7, "ignore_eos": True}
    assert len(body["input_ids"]) == 2048


def test_chats_take_turns_and_end_with_the_user() -> None:
    one = load.session(CHAT, "m", 1, 0)
    one.answered(1)
    one.say(64)
    body = sent(one)

    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "system"
    assert roles[-1] == "user"
    assert len(roles) > 5
    assert all(before != after for before, after in itertools.pairwise(roles))
    assert body["model"] == "m"
    assert body["max_tokens"] == 5
    assert body["stream_options"] == {"include_usage": True}


def test_chats_have_the_characters_that_their_tokens_are() -> None:
    messages = sent(load.cold(CHAT, "m", 1, 0))["messages"]
    assert sum(len(one["content"]) for one in messages[1:]) == 4 * 2048
    [sample] = load.sample_messages(1000)
    assert len(sample["content"]) == 1000


@pytest.mark.parametrize("kind", [IDS, CHAT], ids=["ids", "chat"])
def test_a_seed_is_the_same_load_and_another_one_another(kind: Load) -> None:
    assert load.cold(kind, "m", 1, 0).body(1) == load.cold(kind, "m", 1, 0).body(1)
    different = [(1, 0), (1, 1), (2, 0)]
    assert len({load.cold(kind, "m", *one).body(1) for one in different}) == 3
    assert len({load.session(kind, "m", *one).body(1) for one in different}) == 3


def test_cold_prompts_come_at_once_and_then_as_often_as_said() -> None:
    times = load.cold_times(Load(), 1)
    assert times == load.cold_times(Load(), 1)
    assert times != load.cold_times(Load(), 2)
    assert times[0] == 0.0
    assert times[-1] < Load().measured_s
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert all(0.6 * 5.5 <= one <= 1.4 * 5.5 for one in pauses)
    assert load.cold_times(Load(cold_every_s=60.0), 1) == [0.0]


def test_sessions_think_as_long_as_said() -> None:
    start, *thinking = itertools.islice(load.pauses(Load(), 1, 4), 20)
    assert 0.0 <= start <= load.START_SPREAD_S
    assert all(0.5 <= one <= 1.5 for one in thinking)
    assert [start, *thinking] == list(itertools.islice(load.pauses(Load(), 1, 4), 20))
