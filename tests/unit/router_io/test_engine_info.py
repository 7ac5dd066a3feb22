"""What is read from `/server_info`, of a real engine and of odd ones."""

import json
from typing import Any

import pytest

from shoal_router.dispatch import engine

_READY: dict[str, Any] = {
    "status": "ready",
    "version": "0.5.23",
    "random_seed": 7,
    "startup_time": {"load_weight": 0.2},
    "max_total_num_tokens": 16960,
    "max_req_input_len": 16378,
    "context_length": 16384,
    "max_running_requests": 16,
    "max_queued_requests": 4,
    "page_size": 64,
    "enable_cache_report": True,
    "stream_response_default_include_usage": False,
    "internal_states": [{"effective_max_running_requests_per_dp": 8}, {"effective_max_running_requests_per_dp": 8}],
}


def _parse(**changes: Any) -> engine.EngineInfo:
    found = engine.parse(json.dumps({**_READY, **changes}).encode())
    assert found is not None
    return found


def test_facts() -> None:
    found = _parse()
    assert (found.facts.kv_tokens_max, found.facts.running_max) == (16960, 16)
    assert (found.context_tokens, found.facts.page_tokens, found.queued_max, found.vocab_size) == (16384, 64, 4, None)
    assert (found.cache_reported, found.usage_by_default) == (True, False)


def test_context_of_the_model_is_taken_from_the_longest_input() -> None:
    assert _parse(context_length=None).context_tokens == 16384


def test_what_is_in_force_counts_not_what_was_asked_for() -> None:
    assert _parse(max_running_requests=1000).facts.running_max == 16
    assert _parse(internal_states=[]).facts.running_max == 16
    assert _parse(internal_states=None, max_running_requests=None).facts.running_max is None


@pytest.mark.parametrize("change", [{"random_seed": 8}, {"startup_time": {"load_weight": 0.3}}])
def test_another_start_is_another_boot(change: dict[str, Any]) -> None:
    assert _parse(**change).boot != _parse().boot
    assert _parse().boot == _parse().boot


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"status": "starting"}'])
def test_no_engine_to_speak_of(body: bytes) -> None:
    assert engine.parse(body) is None
