"""Counting: histograms, throughput, and the /metrics page as Prometheus reads it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal_sim import flags, metrics_text, server
from shoal_sim.batch import Batch, Piece
from shoal_sim.prompt import Prompt
from shoal_sim.request import Limits, Request, Signal
from shoal_sim.runtime import Runtime
from shoal_sim.settings import resolve
from shoal_sim.telemetry import Histogram

FAMILIES = metrics_text.load_families()


def runtime() -> Runtime:
    argv = ["--model-path", "/m", "--served-model-name", 'na"me', "--page-size", "64", "--profile", "tiny"]
    return server.build(resolve(flags.parse([*argv, "--speedup", "2"]), {}))


def test_histogram_counts_up_to_its_bounds() -> None:
    histogram = Histogram([1.0, 2.0])
    for value, times in ((0.5, 1), (1.0, 2), (1.5, 1), (9.0, 3)):
        histogram.observe(value, times)
    assert histogram.counts == [3, 1, 3]
    assert (histogram.count, histogram.total) == (7, 0.5 + 2.0 + 1.5 + 27.0)


def test_page_parses_and_holds_every_family() -> None:
    state = runtime()
    state.telemetry.http_began("/ready", "GET")
    state.telemetry.http_ended("/ready", "GET", 200)
    state.telemetry.inter_token.observe(0.005, 3)
    families = list(text_string_to_metric_families(metrics_text.render(FAMILIES, state)))
    names = {family.name: family for family in families}
    for family in FAMILIES:
        name = family["name"].removesuffix("_total") if family["type"] == "counter" else family["name"]
        assert names[name].type == family["type"], name
    samples = {(s.name, s.labels.get("le")): s for family in families for s in family.samples}
    assert samples["sglang:inter_token_latency_seconds_bucket", "0.006"].value == 3
    assert samples["sglang:inter_token_latency_seconds_bucket", "+Inf"].value == 3
    assert samples["sglang:max_total_num_tokens", None].labels["model_name"] == 'na"me'
    assert samples["sglang:http_responses_total", None].labels == {
        "endpoint": "/ready",
        "method": "GET",
        "status_code": "200",
    }


def test_active_requests_come_down_even_without_an_answer() -> None:
    state = runtime()
    state.telemetry.http_began("/generate", "POST")
    state.telemetry.http_ended("/generate", "POST", 0)
    assert state.telemetry.http.active == {("/generate", "POST"): 0}
    assert state.telemetry.http.responses == {}


def test_gaps_between_tokens_are_as_a_client_sees_them() -> None:
    """Divided by the speed-up, and with the prefill that came in between."""
    state = runtime()
    requests = [make_request(state, rid) for rid in "ab"]
    prefill = Batch([Piece(requests[0], 4, 0)], [])
    decode = Batch([], requests)
    for batch, duration_s in ((decode, 0.010), (prefill, 0.100), (decode, 0.010)):
        state.telemetry.step(batch, duration_s, state.engine.scheduler)
    assert state.telemetry.inter_token.count == 4
    assert state.telemetry.inter_token.total == pytest.approx(2 * 0.005 + 2 * 0.055)
    assert state.telemetry.decode_moments[:4] == pytest.approx([2, 4, 120_000, 8])
    assert state.telemetry.prefill_busy_s == pytest.approx(0.100)


def make_request(state: Runtime, rid: str) -> Request:
    return Request(rid, Prompt(b"data", state.settings.policy.page_tokens), Limits(5), Signal())
